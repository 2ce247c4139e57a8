// RUN: mirlo-opt %s --annotate-kinds --fuse-ops --fuse-tir --schedule="target=llvm" | FileCheck %s
// RUN: not mirlo-opt %s --pipeline=llvm 2>&1 | FileCheck %s --check-prefix=ERROR

// Passes leave prim functions alone that are only declared; a call of one cannot be compiled.

// CHECK: func.func private @declared(tensor<8xf32>) -> tensor<8xf32>
// CHECK: func.func private @group(tensor<8xf32>) -> tensor<8xf32>
// CHECK: callee = @declared
// ERROR: pass 'plan-memory' failed: '@declared' is declared over tensors and has no body: give it one
func.func private @declared(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tir.prim_func}

func.func private @group(%x: tensor<8xf32>) -> tensor<8xf32> attributes {relax.primitive}

func.func @main(%x: tensor<8xf32> {relax.name = "x"}) -> (tensor<8xf32> {relax.name = "y"}) {
  %r = "relax.call_tir"(%x) {callee = @declared, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
