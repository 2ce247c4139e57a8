// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Convolutions.

// CHECK-LABEL: func.func @conv1d(
func.func @conv1d(%x: tensor<1x3x16xf32>, %weight: tensor<8x3x3xf32>) -> tensor<1x8x14xf32> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}) :
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x16xf32>, tensor<8x3x3xf32>) -> tensor<1x8x14xf32>
  return %0 : tensor<1x8x14xf32>
}

// CHECK-LABEL: func.func @conv2d(
func.func @conv2d(%x: tensor<?x3x224x224xf32, #relax.dims<["b", 3, 224, 224]>>, %weight: tensor<64x3x7x7xf32>, %bias: tensor<64xf32>) -> tensor<?x64x112x112xf32, #relax.dims<["b", 64, 112, 112]>> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}, %{{.*}}) {padding = array<i64: 3, 3, 3, 3>, strides = array<i64: 2, 2>} :
  %0 = "relax.conv"(%x, %weight, %bias) {padding = array<i64: 3, 3, 3, 3>, strides = array<i64: 2, 2>} : (tensor<?x3x224x224xf32, #relax.dims<["b", 3, 224, 224]>>, tensor<64x3x7x7xf32>, tensor<64xf32>) -> tensor<?x64x112x112xf32, #relax.dims<["b", 64, 112, 112]>>
  return %0 : tensor<?x64x112x112xf32, #relax.dims<["b", 64, 112, 112]>>
}

// CHECK-LABEL: func.func @conv3d(
func.func @conv3d(%x: tensor<1x2x8x8x8xf32>, %weight: tensor<4x2x3x3x3xf32>) -> tensor<1x4x7x5x3xf32> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}) {dilations = array<i64: 1, 2, 3>, padding = array<i64: 0, 0, 0, 1, 1, 1>} :
  %0 = "relax.conv"(%x, %weight) {dilations = array<i64: 1, 2, 3>, padding = array<i64: 0, 0, 0, 1, 1, 1>} : (tensor<1x2x8x8x8xf32>, tensor<4x2x3x3x3xf32>) -> tensor<1x4x7x5x3xf32>
  return %0 : tensor<1x4x7x5x3xf32>
}

// CHECK-LABEL: func.func @conv_symbolic_size(
func.func @conv_symbolic_size(%x: tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, %weight: tensor<8x3x3x3xf32>) -> tensor<?x8x?x?xf32, #relax.dims<["b", 8, "floordiv(h + 1, 2)", "floordiv(w + 1, 2)"]>> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}) {padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} :
  %0 = "relax.conv"(%x, %weight) {padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : (tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, tensor<8x3x3x3xf32>) -> tensor<?x8x?x?xf32, #relax.dims<["b", 8, "floordiv(h + 1, 2)", "floordiv(w + 1, 2)"]>>
  return %0 : tensor<?x8x?x?xf32, #relax.dims<["b", 8, "floordiv(h + 1, 2)", "floordiv(w + 1, 2)"]>>
}

// CHECK-LABEL: func.func @conv_depthwise(
func.func @conv_depthwise(%x: tensor<1x32x14x14xf32>, %weight: tensor<32x1x3x3xf32>) -> tensor<1x32x14x14xf32> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}) {groups = 32 : i64, padding = array<i64: 1, 1, 1, 1>} :
  %0 = "relax.conv"(%x, %weight) {groups = 32 : i64, padding = array<i64: 1, 1, 1, 1>} : (tensor<1x32x14x14xf32>, tensor<32x1x3x3xf32>) -> tensor<1x32x14x14xf32>
  return %0 : tensor<1x32x14x14xf32>
}

// CHECK-LABEL: func.func @conv_channels_last(
func.func @conv_channels_last(%x: tensor<?x14x14x32xf32, #relax.dims<["b", 14, 14, 32]>>, %weight: tensor<3x3x32x64xf32>) -> tensor<?x12x12x64xf32, #relax.dims<["b", 12, 12, 64]>> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}) {data_layout = "N*C", kernel_layout = "*IO"} :
  %0 = "relax.conv"(%x, %weight) {data_layout = "N*C", kernel_layout = "*IO"} : (tensor<?x14x14x32xf32, #relax.dims<["b", 14, 14, 32]>>, tensor<3x3x32x64xf32>) -> tensor<?x12x12x64xf32, #relax.dims<["b", 12, 12, 64]>>
  return %0 : tensor<?x12x12x64xf32, #relax.dims<["b", 12, 12, 64]>>
}

// CHECK-LABEL: func.func @conv_quantized(
func.func @conv_quantized(%x: tensor<1x3x8x8xui8>, %weight: tensor<4x3x1x1xi8>, %bias: tensor<4xi32>) -> tensor<1x4x8x8xi32> {
  // CHECK: "relax.conv"(%{{.*}}, %{{.*}}, %{{.*}}) {out_dtype = i32} :
  %0 = "relax.conv"(%x, %weight, %bias) {out_dtype = i32} : (tensor<1x3x8x8xui8>, tensor<4x3x1x1xi8>, tensor<4xi32>) -> tensor<1x4x8x8xi32>
  return %0 : tensor<1x4x8x8xi32>
}

// CHECK-LABEL: func.func @conv_transpose2d(
func.func @conv_transpose2d(%x: tensor<?x8x7x7xf32, #relax.dims<["b", 8, 7, 7]>>, %weight: tensor<8x4x3x3xf32>, %bias: tensor<4xf32>) -> tensor<?x4x14x14xf32, #relax.dims<["b", 4, 14, 14]>> {
  // CHECK: "relax.conv_transpose"(%{{.*}}, %{{.*}}, %{{.*}}) {output_padding = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} :
  %0 = "relax.conv_transpose"(%x, %weight, %bias) {output_padding = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : (tensor<?x8x7x7xf32, #relax.dims<["b", 8, 7, 7]>>, tensor<8x4x3x3xf32>, tensor<4xf32>) -> tensor<?x4x14x14xf32, #relax.dims<["b", 4, 14, 14]>>
  return %0 : tensor<?x4x14x14xf32, #relax.dims<["b", 4, 14, 14]>>
}

// CHECK-LABEL: func.func @conv_transpose_grouped(
func.func @conv_transpose_grouped(%x: tensor<1x8x?xf32, #relax.dims<[1, 8, "n"]>>, %weight: tensor<8x2x5xf32>) -> tensor<1x8x?xf32, #relax.dims<[1, 8, "n + 8"]>> {
  // CHECK: "relax.conv_transpose"(%{{.*}}, %{{.*}}) {dilations = array<i64: 2>, groups = 4 : i64} :
  %0 = "relax.conv_transpose"(%x, %weight) {dilations = array<i64: 2>, groups = 4 : i64} : (tensor<1x8x?xf32, #relax.dims<[1, 8, "n"]>>, tensor<8x2x5xf32>) -> tensor<1x8x?xf32, #relax.dims<[1, 8, "n + 8"]>>
  return %0 : tensor<1x8x?xf32, #relax.dims<[1, 8, "n + 8"]>>
}

// CHECK-LABEL: func.func @conv_transpose_channels_last(
func.func @conv_transpose_channels_last(%x: tensor<1x7x7x8xf32>, %weight: tensor<8x4x2x2xf32>) -> tensor<1x14x14x4xf32> {
  // CHECK: "relax.conv_transpose"(%{{.*}}, %{{.*}}) {data_layout = "N*C", strides = array<i64: 2, 2>} :
  %0 = "relax.conv_transpose"(%x, %weight) {data_layout = "N*C", strides = array<i64: 2, 2>} : (tensor<1x7x7x8xf32>, tensor<8x4x2x2xf32>) -> tensor<1x14x14x4xf32>
  return %0 : tensor<1x14x14x4xf32>
}
