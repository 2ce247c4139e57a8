// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --fuse-by-pattern=target=fuser --merge-composites --outline-external --verify-calls | FileCheck %s

// Two convolutions in a row become one region of two composites, in a module for their target; tanh stays.

// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[R:.*]] = "relax.call_external"(%arg0) {callee = @fuser::@fuser_0,
// CHECK-NEXT:    %[[T:.*]] = "relax.tanh"(%[[R]])
// CHECK-NEXT:    return %[[T]]
// CHECK-LABEL: module @fuser attributes {relax.external = "fuser"}
// CHECK:         func.func private @fuser_conv_bias_relu_0(%arg0: tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32>
// CHECK-SAME:      attributes {relax.composite = "fuser.conv_bias_relu", relax.target = "fuser"}
// CHECK-NEXT:      %[[W:.*]] = "relax.constant"() {param = "w"}
// CHECK-NEXT:      %[[B:.*]] = "relax.constant"() {value = dense<5.000000e-01>
// CHECK-NEXT:      %[[C:.*]] = "relax.conv"(%arg0, %[[W]])
// CHECK-NEXT:      %[[A:.*]] = "relax.add"(%[[B]], %[[C]])
// CHECK-NEXT:      %[[Y:.*]] = "relax.relu"(%[[A]])
// CHECK-NEXT:      return %[[Y]]
// CHECK:         func.func private @fuser_conv_0(
// CHECK-SAME:      attributes {relax.composite = "fuser.conv", relax.target = "fuser"}
// CHECK:           "relax.conv"
// CHECK:         func.func public @fuser_0(%arg0: tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32> {
// CHECK-NEXT:      %[[F:.*]] = call @fuser_conv_bias_relu_0(%arg0)
// CHECK-NEXT:      %[[G:.*]] = call @fuser_conv_0(%[[F]])
// CHECK-NEXT:      return %[[G]]
func.func @main(%x: tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x3x3xf32>
  %w2 = "relax.constant"() {param = "w2"} : () -> tensor<4x4x3x3xf32>
  %b = "relax.constant"() {value = dense<0.5> : tensor<4x1x1xf32>} : () -> tensor<4x1x1xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.add"(%b, %0) : (tensor<4x1x1xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.relu"(%1) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = "relax.conv"(%2, %w2) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x8x8xf32>
  %4 = "relax.tanh"(%3) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %4 : tensor<1x4x8x8xf32>
}
