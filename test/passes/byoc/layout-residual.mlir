// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=ohwi --outline-external --run-on-external=target=ohwi --hoist-layouts --verify-calls | FileCheck %s

// A residual that comes from outside in another layout: it is permuted once, where the first convolution needs it so
// anyway, and the sum is taken in the layout of the convolutions. Only the permutes of the input and of the result are
// left.

// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[P:.*]] = "relax.permute"(%arg0) {axes = array<i64: 0, 2, 3, 1>, relax.layout}
// CHECK-NEXT:    %[[X:.*]] = "relax.call_external"(%[[P]])
// CHECK-NEXT:    %[[B:.*]] = "relax.permute"(%[[X]]) {axes = array<i64: 0, 3, 1, 2>, relax.layout}
// CHECK-NEXT:    return %[[B]]
// CHECK-NOT:     "relax.permute"
// CHECK:         func.func public @ohwi_0(%arg0: tensor<1x4x4x2xf32>)
// CHECK-NEXT:      %[[A:.*]] = call @ohwi_conv_relu_0(%arg0)
// CHECK-NEXT:      %[[C:.*]] = call @ohwi_conv_add_relu_0(%[[A]], %arg0)
// CHECK-NEXT:      %[[D:.*]] = call @ohwi_conv_relu_1(%[[C]])
// CHECK-NEXT:      return %[[D]]
func.func @main(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %w = "relax.constant"() {value = dense<[[[[1.0]], [[2.0]]], [[[3.0]], [[4.0]]]]> : tensor<2x2x1x1xf32>} : () -> tensor<2x2x1x1xf32>
  %1 = "relax.conv"(%x, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %2 = "relax.relu"(%1) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %3 = "relax.conv"(%2, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %4 = "relax.add"(%3, %x) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %5 = "relax.relu"(%4) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %6 = "relax.conv"(%5, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %7 = "relax.relu"(%6) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  return %7 : tensor<1x2x4x4xf32>
}
