// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=padder --outline-external --run-on-external=target=padder --hoist-layouts --verify-calls | FileCheck %s

// Permutes of a constant and of data by the same axes: both move to the edge, and the constant is folded.

// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[P:.*]] = "relax.permute"(%arg0) {axes = array<i64: 0, 2, 3, 1>, relax.layout}
// CHECK-NEXT:    %[[X:.*]] = "relax.call_external"(%[[P]])
// CHECK:         func.func private @padder_scaled_0(
// CHECK-NOT:     "relax.permute"
// CHECK:         "relax.pad"
// CHECK-NOT:     "relax.permute"
// CHECK:         "relax.multiply"
// CHECK-NOT:     "relax.permute"
func.func @main(%x: tensor<1x3x4x4xf32>) -> tensor<1x2x6x6xf32> {
  %w = "relax.constant"() {value = dense<2.0> : tensor<2x3x1x1xf32>} : () -> tensor<2x3x1x1xf32>
  %c = "relax.constant"() {value = dense<[[[[1.0]], [[2.0]]]]> : tensor<1x2x1x1xf32>} : () -> tensor<1x2x1x1xf32>
  %0 = "relax.pad"(%x) {pads = array<i64: 0, 0, 1, 1, 0, 0, 1, 1>, value = 1.0 : f64} : (tensor<1x3x4x4xf32>) -> tensor<1x3x6x6xf32>
  %1 = "relax.conv"(%0, %w) : (tensor<1x3x6x6xf32>, tensor<2x3x1x1xf32>) -> tensor<1x2x6x6xf32>
  %2 = "relax.multiply"(%1, %c) : (tensor<1x2x6x6xf32>, tensor<1x2x1x1xf32>) -> tensor<1x2x6x6xf32>
  return %2 : tensor<1x2x6x6xf32>
}
