// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=ohwi --outline-external --run-on-external=target=ohwi --hoist-layouts=target=ohwi --verify-calls | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=ohwi --outline-external --run-on-external='target=ohwi pipeline={convert-layout{layouts={relax.conv=NC*:*IO}},fold-constant}' --verify-calls | FileCheck %s --check-prefix=ASKED
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --verify-diagnostics --partition=targets=ohwi --outline-external --run-on-external='target=ohwi pipeline=convert-layout' --hoist-layouts='target=ohwi explain' -o /dev/null
// RUN: not mirlo-opt %s --convert-layout='layouts={relax.conv=HWIO}' 2>&1 | FileCheck %s --check-prefix=LAYOUT
// RUN: not mirlo-opt %s --convert-layout='layouts={relax.relu=N*C}' 2>&1 | FileCheck %s --check-prefix=OPERATOR

// One module, two layouts: the convolutions that were given to the target are channels last, their kernels, folded when
// compiling, have the out channels first, then the window (OHWI); the convolution that stays keeps what it had. Between
// the composites and between the regions no permute is left, the residual included: two remain, where the model begins
// and where the last region ends.

// expected-remark @unknown {{8 permutes of layouts: 6 cancelled, 2 left, 2 of them at the boundary of regions}}

// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[W:.*]] = "relax.constant"() {value = dense<{{\[\[\[\[}}1.000000e+00]], {{\[\[}}2.000000e+00]]], {{\[\[\[}}3.000000e+00]], {{\[\[}}4.000000e+00]]]]>
// CHECK-NEXT:    %[[P:.*]] = "relax.permute"(%arg0) {axes = array<i64: 0, 2, 3, 1>, relax.layout}
// CHECK-NEXT:    %[[X:.*]] = "relax.call_external"(%[[P]]) {callee = @ohwi::@ohwi_0,
// CHECK-NEXT:    %[[T:.*]] = "relax.tanh"(%[[X]])
// CHECK-NEXT:    %[[Y:.*]] = "relax.call_external"(%[[T]]) {callee = @ohwi::@ohwi_1,
// CHECK-NEXT:    %[[B:.*]] = "relax.permute"(%[[Y]]) {axes = array<i64: 0, 3, 1, 2>, relax.layout}
// CHECK-NEXT:    %[[Z:.*]] = "relax.conv"(%[[B]], %[[W]]) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
// CHECK-NEXT:    return %[[Z]]
// CHECK:       module @ohwi
// CHECK-NOT:     "relax.permute"
// CHECK:         func.func private @ohwi_conv_relu_0(%arg0: tensor<1x4x4x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:      %[[W:.*]] = "relax.constant"() {value = dense<{{\[\[\[\[}}1.000000e+00, 2.000000e+00]]], {{\[\[\[}}3.000000e+00, 4.000000e+00]]]]> : tensor<2x1x1x2xf32>}
// CHECK-NEXT:      "relax.conv"(%arg0, %[[W]]) {data_layout = "N*C", kernel_layout = "O*I"}
// CHECK:         func.func private @ohwi_conv_add_relu_0(%arg0: tensor<1x4x4x2xf32>, %arg1: tensor<1x4x4x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK:           "relax.conv"(%arg0, %{{.*}}) {data_layout = "N*C", kernel_layout = "O*I"}
// CHECK-NOT:     "relax.permute"

// Other layouts, for the same module, in the pipeline's own words.

// ASKED-LABEL: func.func @main(
// ASKED-NOT:     "relax.permute"
// ASKED:         "relax.conv"(%{{.*}}, %{{.*}}) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>)
// ASKED:       module @ohwi
// ASKED:           "relax.conv"(%arg0, %{{.*}}) {kernel_layout = "*IO"} : (tensor<1x2x4x4xf32>, tensor<1x1x2x2xf32>)

// LAYOUT: error: {{.*}}'relax.conv' has no layout 'HWIO'; it has: NC*, N*C
// OPERATOR: error: {{.*}}a layout is wanted for 'relax.relu', which has none
func.func @main(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %w = "relax.constant"() {value = dense<[[[[1.0]], [[2.0]]], [[[3.0]], [[4.0]]]]> : tensor<2x2x1x1xf32>} : () -> tensor<2x2x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %1 = "relax.relu"(%0) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %2 = "relax.conv"(%1, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %3 = "relax.relu"(%2) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %4 = "relax.conv"(%3, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %5 = "relax.add"(%4, %1) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %6 = "relax.relu"(%5) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %7 = "relax.tanh"(%6) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %8 = "relax.conv"(%7, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %9 = "relax.relu"(%8) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %10 = "relax.conv"(%9, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  return %10 : tensor<1x2x4x4xf32>
}
