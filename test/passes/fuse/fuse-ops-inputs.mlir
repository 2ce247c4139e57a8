// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops=max-inputs=3 | FileCheck %s

// A function reads at most so many tensors: the third addition would be a fourth one.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[A:.*]] = call @fused_add(%arg0, %arg1, %arg2)
// CHECK-NEXT:    "relax.call_tir"(%[[A]], %arg3) {callee = @add
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>, %d: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.add"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.add"(%0, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%1, %d) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
