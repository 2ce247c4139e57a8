// RUN: mirlo-opt %s --convert-layout | FileCheck %s

// Layouts pass a quantization whose scales are of channels.
// CHECK-LABEL: func.func @quantized_channels(
// CHECK:         %[[C:.*]] = "relax.conv"(%{{.*}}) {data_layout = "N*C", kernel_layout = "*IO"}
// CHECK-NEXT:    %[[Q:.*]] = "relax.quantize"(%[[C]], %arg1) {axis = 3 : i64, dtype = i8}
// CHECK-NEXT:    %[[R:.*]] = "relax.permute"(%[[Q]]) {axes = array<i64: 0, 3, 1, 2>, relax.layout}
// CHECK-NEXT:    return %[[R]]
func.func @quantized_channels(%x: tensor<1x3x5x5xf32>, %s: tensor<4xf32>) -> tensor<1x4x5x5xi8> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<4x3x1x1xf32>} : () -> tensor<4x3x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
  %1 = "relax.quantize"(%0, %s) {axis = 1 : i64, dtype = i8} : (tensor<1x4x5x5xf32>, tensor<4xf32>) -> tensor<1x4x5x5xi8>
  return %1 : tensor<1x4x5x5xi8>
}
