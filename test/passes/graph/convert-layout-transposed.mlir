// RUN: mirlo-opt %s --convert-layout | FileCheck %s

// Both phases of each dim as channels of one convolution, then in their places; cropped, with the bias.
// CHECK-LABEL: func.func @phases(
// CHECK:         %[[R:.*]] = "relax.reverse"(%{{.*}}) {axes = array<i64: 2, 4>} : (tensor<8x4x2x2x2x2xf32>)
// CHECK:         %[[T:.*]] = "relax.permute"(%[[R]]) {axes = array<i64: 2, 4, 0, 3, 5, 1>}
// CHECK:         %[[W:.*]] = "relax.reshape"(%[[T]]) {{.*}} -> tensor<2x2x8x16xf32>
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

// A weight that is an input is rearranged in the call; its phases are channels.
// CHECK-LABEL: func.func @weight_of_the_call(
// CHECK:         "relax.reverse"
// CHECK:         "relax.conv"({{.*}}) {data_layout = "N*C", kernel_layout = "*IO", padding = array<i64: 0, 0, 0, 0>} : (tensor<1x5x6x8xf32>, tensor<1x1x8x16xf32>)
func.func @weight_of_the_call(%x: tensor<1x8x5x6xf32>, %k: tensor<8x4x2x2xf32>) -> tensor<1x4x10x12xf32> {
  %0 = "relax.conv_transpose"(%x, %k) {strides = array<i64: 2, 2>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x4x10x12xf32>
  return %0 : tensor<1x4x10x12xf32>
}

// With strides of 1 it is a convolution with reversed windows, dilated and grouped as it is.
// CHECK-LABEL: func.func @strides_of_one(
// CHECK:         %[[R:.*]] = "relax.reverse"({{.*}}) {axes = array<i64: 2, 3>}
// CHECK:         %[[W:.*]] = "relax.permute"(%[[R]]) {axes = array<i64: 1, 0, 2, 3>}
// CHECK:         "relax.conv"(%arg0, %[[W]]) {dilations = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>}
// CHECK:         %[[G:.*]] = "relax.reshape"({{.*}}) {{.*}} -> tensor<8x4x2x2xf32>
// CHECK:         "relax.conv"(%arg0, %[[G]]) {{.*}}groups = 2 : i64, padding = array<i64: 1, 1, 1, 1>}
func.func @strides_of_one(%x: tensor<1x8x5x6xf32>, %k: tensor<8x4x2x2xf32>) -> (tensor<1x4x5x6xf32>, tensor<1x8x6x7xf32>) {
  %0 = "relax.conv_transpose"(%x, %k) {dilations = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x4x5x6xf32>
  %1 = "relax.conv_transpose"(%x, %k) {groups = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x8x6x7xf32>
  return %0, %1 : tensor<1x4x5x6xf32>, tensor<1x8x6x7xf32>
}

// Windows of a channel each: zeros between the elements of the operand.
// CHECK-LABEL: func.func @depthwise(
// CHECK:         "relax.pad"({{.*}}) {{.*}} -> tensor<1x8x5x2x6x2xf32>
// CHECK:         "relax.conv"({{.*}}) {{.*}}groups = 8 : i64{{.*}} -> tensor<1x8x10x12xf32>
func.func @depthwise(%x: tensor<1x8x5x6xf32>, %k: tensor<8x1x3x3xf32>) -> tensor<1x8x10x12xf32> {
  %0 = "relax.conv_transpose"(%x, %k) {strides = array<i64: 2, 2>, groups = 8 : i64, padding = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x10x12xf32>
  return %0 : tensor<1x8x10x12xf32>
}

// Dilations with steps, groups of several channels with steps.
// CHECK-LABEL: func.func @declined(
// CHECK-COUNT-2: "relax.conv_transpose"
// CHECK-NOT:     "relax.conv"
func.func @declined(%x: tensor<1x8x5x6xf32>, %k: tensor<8x4x2x2xf32>) -> (tensor<1x4x11x13xf32>, tensor<1x8x10x12xf32>) {
  %0 = "relax.conv_transpose"(%x, %k) {strides = array<i64: 2, 2>, dilations = array<i64: 2, 2>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x4x11x13xf32>
  %1 = "relax.conv_transpose"(%x, %k) {strides = array<i64: 2, 2>, groups = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x5x6xf32>, tensor<8x4x2x2xf32>) -> tensor<1x8x10x12xf32>
  return %0, %1 : tensor<1x4x11x13xf32>, tensor<1x8x10x12xf32>
}

// Weights of convolutions that are inputs: permuted in the call where that is worth it; and the gradient of a weight.
// CHECK-LABEL: func.func @in_the_call(
// CHECK:         "relax.conv"({{.*}}) {data_layout = "N*C", kernel_layout = "*IO"{{.*}} -> tensor<1x12x12x16xf32>
// CHECK:         "relax.conv"(%arg1, %arg2) {{.*}} -> tensor<1x16x4x4xf32>
// CHECK:         "relax.conv_weight_gradient"({{.*}}) {data_layout = "N*C", kernel_layout = "*IO"{{.*}} -> tensor<3x3x8x16xf32>
func.func @in_the_call(%x: tensor<1x8x12x12xf32>, %y: tensor<1x8x4x4xf32>, %k: tensor<16x8x3x3xf32>, %g: tensor<1x16x12x12xf32>) -> (tensor<1x16x12x12xf32>, tensor<1x16x4x4xf32>, tensor<16x8x3x3xf32>) {
  %0 = "relax.conv"(%x, %k) {padding = array<i64: 1, 1, 1, 1>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x12x12xf32>, tensor<16x8x3x3xf32>) -> tensor<1x16x12x12xf32>
  %1 = "relax.conv"(%y, %k) {padding = array<i64: 1, 1, 1, 1>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x4x4xf32>, tensor<16x8x3x3xf32>) -> tensor<1x16x4x4xf32>
  %2 = "relax.conv_weight_gradient"(%x, %g) {window = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>} : (tensor<1x8x12x12xf32>, tensor<1x16x12x12xf32>) -> tensor<16x8x3x3xf32>
  return %0, %1, %2 : tensor<1x16x12x12xf32>, tensor<1x16x4x4xf32>, tensor<16x8x3x3xf32>
}
