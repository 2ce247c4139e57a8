// RUN: mirlo-opt %s --fuse-ops --fuse-tir --split-input-file --verify-diagnostics

// expected-error @below {{'tir.kind' must be one of elementwise, broadcast, injective, reduce, row, columns, contraction, opaque; got "elementwize"}}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {tir.prim_func, tir.kind = "elementwize"} {
  return %x : tensor<4xf32>
}

// -----

func.func private @group(%x: tensor<4xf32>) -> tensor<4xf32> attributes {relax.primitive} {
  // expected-error @below {{'@group' is a 'relax.primitive' function, which holds calls of prim functions only, but has 'relax.exp'}}
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func private @group(%x: tensor<4xf32>) -> tensor<4xf32> attributes {relax.primitive} {
  // expected-error @below {{'@copy' is scheduled already: fuse-tir comes before schedule}}
  %0 = "relax.call_tir"(%x) {callee = @copy, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @copy(%x: memref<4xf32>, %y: memref<4xf32>) attributes {tir.prim_func} {
  memref.copy %x, %y : memref<4xf32> to memref<4xf32>
  return
}

// -----

func.func private @group(%x: tensor<4xf32>) -> tensor<4xf32> attributes {relax.primitive} {
  // expected-error @below {{'@nothing' is not a prim function of this module}}
  %0 = "relax.call_tir"(%x) {callee = @nothing, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
