// RUN: mirlo-opt %s --verify-bounds=fail=all | FileCheck %s

// A quotient by a dim of a quotient by another is a row, as the first quotient is less than a multiple of the dim.

// CHECK: func.func private @quotient_of_a_quotient
func.func private @quotient_of_a_quotient(%x: memref<281474976710656xf32>, %y: memref<281474976710656xf32>, %n: index, %c: index, %w: index)
    attributes {tir.prim_func, tir.symbols = ["n", "c", "w"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %planes = arith.muli %n, %c : index
  %size = arith.muli %planes, %w : index
  scf.for %i = %c0 to %size step %c1 {
    %plane = arith.divui %i, %w : index
    %row = arith.divui %plane, %c : index
    %v = memref.load %x[%row] : memref<281474976710656xf32>
    memref.store %v, %y[%i] : memref<281474976710656xf32>
  }
  return
}

func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?x?x?xf32, #relax.dims<["n", "c", "w"]>> {
  %0 = "relax.call_tir"(%x) {callee = @quotient_of_a_quotient, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?x?x?xf32, #relax.dims<["n", "c", "w"]>>
  return %0 : tensor<?x?x?xf32, #relax.dims<["n", "c", "w"]>>
}

// A shift to the right is a quotient: each element is read for two iterations.

// CHECK: func.func private @shifted
func.func private @shifted(%x: memref<10xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c20 = arith.constant 20 : index
  scf.for %i = %c0 to %c20 step %c1 {
    %signed = arith.shrsi %i, %c1 : index
    %half = arith.shrui %i, %c1 : index
    %a = memref.load %x[%signed] : memref<10xf32>
    %b = memref.load %x[%half] : memref<10xf32>
    %v = arith.addf %a, %b : f32
    memref.store %v, %y[%i] : memref<20xf32>
  }
  return
}
