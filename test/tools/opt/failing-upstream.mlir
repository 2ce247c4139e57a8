// What MLIR's own passes have against the IR, and the name of the pass.
// RUN: not mirlo-opt %s --one-shot-bufferize='bufferize-function-boundaries' 2>&1 | FileCheck %s
// RUN: mirlo-opt %s --one-shot-bufferize='bufferize-function-boundaries' --verify-diagnostics

// CHECK: failing-upstream.mlir:11:8: error: op was not bufferized
// CHECK-NEXT: %0 = "relax.add"
// CHECK: note: see current operation
// CHECK: note: pass 'one-shot-bufferize' failed
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{op was not bufferized}}
  %0 = "relax.add"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
