// RUN: mirlo-opt %s --convert-layout | FileCheck %s

// Both phases of each dim as channels of one convolution, then in their places; cropped, with the bias.
// CHECK-LABEL: func.func @phases(
// CHECK:         %[[W:.*]] = "relax.constant"() {param = "constant.phases"} : () -> tensor<2x2x8x16xf32>
// CHECK:         %[[Y:.*]] = "relax.conv"(%{{.*}}, %[[W]]) {{.*}}data_layout = "N*C", kernel_layout = "*IO"{{.*}}padding = array<i64: 1, 1, 1, 1>{{.*}} -> tensor<1x6x7x16xf32>
// CHECK:         %[[R:.*]] = "relax.reshape"(%[[Y]]) {{.*}} -> tensor<1x6x7x2x2x4xf32>
// CHECK:         %[[P:.*]] = "relax.permute"(%[[R]]) {axes = array<i64: 0, 1, 3, 2, 4, 5>}
// CHECK:         %[[F:.*]] = "relax.reshape"(%[[P]]) {{.*}} -> tensor<1x12x14x4xf32>
// CHECK:         %[[S:.*]] = "relax.strided_slice"(%[[F]]) {axes = array<i64: 1, 2>, begin = array<i64: 1, 1>, end = array<i64: 11, 13>
// CHECK:         "relax.add"(%[[S]], %arg1)
func.func @phases(%x: tensor<1x8x5x6xf32>, %bias: tensor<4xf32>) -> tensor<1x4x10x12xf32> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<8x4x4x4xf32>} : () -> tensor<8x4x4x4xf32>
  %0 = "relax.conv_transpose"(%x, %w, %bias) {strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<1x8x5x6xf32>, tensor<8x4x4x4xf32>, tensor<4xf32>) -> tensor<1x4x10x12xf32>
  return %0 : tensor<1x4x10x12xf32>
}

// A dynamic weight, dilations, groups.
// CHECK-LABEL: func.func @declined(
// CHECK-COUNT-3: "relax.conv_transpose"
// CHECK-NOT:     "relax.conv"
func.func @declined(%x: tensor<1x8x5x6xf32>, %k: tensor<8x4x2x2xf32>) -> (tensor<1x4x10x12xf32>, tensor<1x4x7x8xf32>, tensor<1x8x10x12xf32>) {
  %w = "relax.constant"() {value = dense<0.5> : tensor<8x4x2x2xf32>} : () -> tensor<8x4x2x2xf32>
  %0 = "relax.conv_transpose"(%x, %k) {strides = array<i64: 2, 2>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x4x10x12xf32>
  %1 = "relax.conv_transpose"(%x, %w) {dilations = array<i64: 2, 2>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x4x7x8xf32>
  %2 = "relax.conv_transpose"(%x, %w) {strides = array<i64: 2, 2>, groups = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x8x10x12xf32>
  return %0, %1, %2 : tensor<1x4x10x12xf32>, tensor<1x4x7x8xf32>, tensor<1x8x10x12xf32>
}
