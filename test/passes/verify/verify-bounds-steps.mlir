// RUN: mirlo-opt %s --verify-bounds="fail=never steps=1 remarks" --split-input-file --verify-diagnostics

// Accesses by data are proven whatever the proofs of others take.

func.func private @lookup(%x: memref<281474976710656xf32>, %at: memref<8xi64>, %y: memref<8xf32>, %n: index)
    attributes {tir.prim_func, tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %last = arith.subi %n, %c1 : index
  scf.for %i = %c0 to %n step %c1 {
    %k = arith.addi %i, %c1 : index
    // expected-remark@+1 {{'memref.load' to parameter 0: its index is not proven to be in bounds}}
    %v = memref.load %x[%k] : memref<281474976710656xf32>
    memref.store %v, %y[%c0] : memref<8xf32>
  }
  scf.for %i = %c0 to %c8 step %c1 {
    %data = memref.load %at[%i] : memref<8xi64>
    %k = arith.index_cast %data : i64 to index
    %low = arith.minsi %k, %last : index
    %clamped = arith.maxsi %low, %c0 : index
    %v = memref.load %x[%clamped] : memref<281474976710656xf32>
    memref.store %v, %y[%i] : memref<8xf32>
  }
  return
}

func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>, %at: tensor<8xi64>) -> tensor<8xf32> {
  %0 = "relax.call_tir"(%x, %at) {callee = @lookup, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>, tensor<8xi64>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
