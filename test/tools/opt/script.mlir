// A module as script, and back: the same IR.
// RUN: mirlo-opt %s --emit-script -o %t.py
// RUN: FileCheck %s < %t.py
// RUN: mirlo-opt %s > %t.before.mlir
// RUN: mirlo-opt %t.py > %t.after.mlir
// RUN: diff %t.before.mlir %t.after.mlir

// CHECK: @mirlo.script
// CHECK-NEXT: class Module:
// CHECK-NEXT: @R.function
// CHECK-NEXT: def main(x0: R.Tensor[(4, "n"), "f32", "x"]) -> R.Tensor[(4, "n"), "f32", "y"]:
// CHECK-NEXT: v1 = R.softmax(x0, axis=0)
// CHECK-NEXT: return v1
func.func @main(%x: tensor<4x?xf32, #relax.dims<[4, "n"]>> {relax.name = "x"})
    -> (tensor<4x?xf32, #relax.dims<[4, "n"]>> {relax.name = "y"}) {
  %0 = "relax.softmax"(%x) {axis = 0} : (tensor<4x?xf32, #relax.dims<[4, "n"]>>) -> tensor<4x?xf32, #relax.dims<[4, "n"]>>
  return %0 : tensor<4x?xf32, #relax.dims<[4, "n"]>>
}

// CHECK: @T.prim_func(attrs={"tir.kind": '"elementwise"'})
// CHECK-NEXT: def double(x0: T.Buffer[(4, 8), "f32"], y0: T.Out[(4, 8), "f32"]):
// CHECK-NEXT: for i0, i1 in T.grid(4, 8):
// CHECK-NEXT: with T.block("double"):
// CHECK-NEXT: v0, v1 = T.axes("SS", i0, i1)
// CHECK-NEXT: y0[v0, v1] = x0[v0, v1] * 2.0
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func private @double(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {tir.prim_func, tir.kind = "elementwise"} {
  %0 = "tir.block"(%arg0) ({
  ^bb0(%i: index, %j: index, %x: f32):
    %two = arith.constant 2.000000e+00 : f32
    %y = arith.mulf %x, %two fastmath<contract> : f32
    "tir.yield"(%y) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [4, 8], init = [unit], maps = [#map, #map], name = "double",
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// CHECK: @T.prim_func(buffers=True)
// CHECK-NEXT: def clear(x0: T.Buffer[(4, 8), "f32"], y0: T.Out[(4, 8), "f32"]):
// CHECK-NEXT: for i0 in T.parallel(4):
// CHECK-NEXT: for i1 in range(2, 8, 3):
// CHECK-NEXT: if x0[i0, i1] > 0.0:
// CHECK-NEXT: y0[i0, i1] = 0.0
func.func private @clear(%x: memref<4x8xf32>, %y: memref<4x8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  "tir.for"(%c0, %c4) ({
  ^bb0(%i: index):
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    %c3 = arith.constant 3 : index
    scf.for %j = %c2 to %c8 step %c3 {
      %v = memref.load %x[%i, %j] : memref<4x8xf32>
      %zero = arith.constant 0.000000e+00 : f32
      %positive = arith.cmpf ogt, %v, %zero : f32
      scf.if %positive {
        %zero_1 = arith.constant 0.000000e+00 : f32
        memref.store %zero_1, %y[%i, %j] : memref<4x8xf32>
      } else {
      }
    }
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "parallel"} : (index, index) -> ()
  return
}

// What script has no words for stands as MLIR.
// CHECK: vectors = T.mlir("""
// CHECK-NEXT: func.func private @vectors
func.func private @vectors(%x: memref<4x8xf32>, %y: memref<4x8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.000000e+00 : f32
  %v = vector.transfer_read %x[%c0, %c0], %zero : memref<4x8xf32>, vector<8xf32>
  vector.transfer_write %v, %y[%c0, %c0] : vector<8xf32>, memref<4x8xf32>
  return
}
