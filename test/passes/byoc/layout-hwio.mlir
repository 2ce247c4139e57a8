// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=ohwi --outline-external --run-on-external=target=ohwi --hoist-layouts=target=ohwi --verify-calls | FileCheck %s

// Kernels that come as HWIO: the one that is given away becomes OHWI when compiling, the other one stays HWIO, and no
// permute is needed anywhere.

// CHECK-LABEL: func.func @hwio(
// CHECK-NEXT:    %[[W:.*]] = "relax.constant"() {value = dense<{{.*}}> : tensor<1x2x1x2xf32>}
// CHECK-NEXT:    %[[X:.*]] = "relax.call_external"(%arg0) {callee = @ohwi::@ohwi_0,
// CHECK-NEXT:    %[[Y:.*]] = "relax.conv"(%[[X]], %[[W]]) {data_layout = "N*C", groups = 2 : i64, kernel_layout = "*IO"}
// CHECK-NEXT:    return %[[Y]]
// CHECK-LABEL:   func.func private @ohwi_conv_relu_0(%arg0: tensor<1x4x4x1xf32>) -> tensor<1x4x3x2xf32>
// CHECK-NEXT:      %[[V:.*]] = "relax.constant"() {value = dense<{{\[\[\[\[}}1.000000e+00], [3.000000e+00]]], {{\[\[\[}}2.000000e+00], [4.000000e+00]]]]> : tensor<2x1x2x1xf32>}
// CHECK-NEXT:      "relax.conv"(%arg0, %[[V]]) {data_layout = "N*C", kernel_layout = "O*I"}
func.func @hwio(%x: tensor<1x4x4x1xf32>) -> tensor<1x4x2x2xf32> {
  %v = "relax.constant"() {value = dense<[[[[1.0, 2.0]], [[3.0, 4.0]]]]> : tensor<1x2x1x2xf32>} : () -> tensor<1x2x1x2xf32>
  %w = "relax.constant"() {value = dense<[[[[1.0, 2.0]], [[3.0, 4.0]]]]> : tensor<1x2x1x2xf32>} : () -> tensor<1x2x1x2xf32>
  %0 = "relax.conv"(%x, %v) {data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x4x4x1xf32>, tensor<1x2x1x2xf32>) -> tensor<1x4x3x2xf32>
  %1 = "relax.relu"(%0) : (tensor<1x4x3x2xf32>) -> tensor<1x4x3x2xf32>
  %2 = "relax.conv"(%1, %w) {data_layout = "N*C", kernel_layout = "*IO", groups = 2 : i64} : (tensor<1x4x3x2xf32>, tensor<1x2x1x2xf32>) -> tensor<1x4x2x2xf32>
  return %2 : tensor<1x4x2x2xf32>
}
