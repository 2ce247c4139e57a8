// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Normalizations.

// CHECK-LABEL: func.func @layer_norm_plain(
func.func @layer_norm_plain(%x: tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>> {
  // CHECK: "relax.layer_norm"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 0, 0>} :
  %0 = "relax.layer_norm"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
  return %0 : tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
}

// CHECK-LABEL: func.func @layer_norm_scale(
func.func @layer_norm_scale(%x: tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>, %scale: tensor<8xf32>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>> {
  // CHECK: "relax.layer_norm"(%{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 0>} :
  %0 = "relax.layer_norm"(%x, %scale) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>, tensor<8xf32>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
  return %0 : tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
}

// CHECK-LABEL: func.func @layer_norm_bias_only(
func.func @layer_norm_bias_only(%x: tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>, %bias: tensor<8xf32>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>> {
  // CHECK: "relax.layer_norm"(%{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 0, 1>} :
  %0 = "relax.layer_norm"(%x, %bias) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>, tensor<8xf32>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
  return %0 : tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
}

// CHECK-LABEL: func.func @layer_norm_two_axes(
func.func @layer_norm_two_axes(%x: tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>, %scale: tensor<3x8xf32>, %bias: tensor<8xf32>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>> {
  // CHECK: "relax.layer_norm"(%{{.*}}, %{{.*}}, %{{.*}}) {axis = 1 : i64, epsilon = 9.9999999999999995E-7 : f64, operandSegmentSizes = array<i32: 1, 1, 1>} :
  %0 = "relax.layer_norm"(%x, %scale, %bias) {axis = 1 : i64, epsilon = 9.9999999999999995E-7 : f64, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>, tensor<3x8xf32>, tensor<8xf32>) -> tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
  return %0 : tensor<?x3x8xf32, #relax.dims<["b", 3, 8]>>
}

// CHECK-LABEL: func.func @rms_norm_plain(
func.func @rms_norm_plain(%x: tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>) -> tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>> {
  // CHECK: "relax.rms_norm"(%{{.*}}) :
  %0 = "relax.rms_norm"(%x) : (tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>) -> tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>
  return %0 : tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>
}

// CHECK-LABEL: func.func @rms_norm_scale(
func.func @rms_norm_scale(%x: tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>, %scale: tensor<8xf16>) -> tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>> {
  // CHECK: "relax.rms_norm"(%{{.*}}, %{{.*}}) {epsilon = 9.9999999999999995E-7 : f64} :
  %0 = "relax.rms_norm"(%x, %scale) {epsilon = 9.9999999999999995E-7 : f64} : (tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>, tensor<8xf16>) -> tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>
  return %0 : tensor<?x?x8xf16, #relax.dims<["b", "s", 8]>>
}

// CHECK-LABEL: func.func @batch_norm_images(
func.func @batch_norm_images(%x: tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, %scale: tensor<3xf32>, %bias: tensor<3xf32>, %mean: tensor<3xf32>, %variance: tensor<3xf32>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>> {
  // CHECK: "relax.batch_norm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {epsilon = 1.000000e-03 : f64} :
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) {epsilon = 1.000000e-03 : f64} : (tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>
  return %0 : tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>
}

// CHECK-LABEL: func.func @batch_norm_channels_last(
func.func @batch_norm_channels_last(%x: tensor<?x?x?x3xf32, #relax.dims<["b", "h", "w", 3]>>, %scale: tensor<3xf32>, %bias: tensor<3xf32>, %mean: tensor<3xf32>, %variance: tensor<3xf32>) -> tensor<?x?x?x3xf32, #relax.dims<["b", "h", "w", 3]>> {
  // CHECK: "relax.batch_norm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {axis = -1 : i64} :
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) {axis = -1 : i64} : (tensor<?x?x?x3xf32, #relax.dims<["b", "h", "w", 3]>>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x?x?x3xf32, #relax.dims<["b", "h", "w", 3]>>
  return %0 : tensor<?x?x?x3xf32, #relax.dims<["b", "h", "w", 3]>>
}

// CHECK-LABEL: func.func @instance_norm_images(
func.func @instance_norm_images(%x: tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>> {
  // CHECK: "relax.instance_norm"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.instance_norm"(%x, %scale, %bias) : (tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>
  return %0 : tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>
}

// CHECK-LABEL: func.func @group_norm_images(
func.func @group_norm_images(%x: tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>, %scale: tensor<6xf32>, %bias: tensor<6xf32>) -> tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>> {
  // CHECK: "relax.group_norm"(%{{.*}}, %{{.*}}, %{{.*}}) {groups = 3 : i64} :
  %0 = "relax.group_norm"(%x, %scale, %bias) {groups = 3 : i64} : (tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>, tensor<6xf32>, tensor<6xf32>) -> tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>
  return %0 : tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>
}

// CHECK-LABEL: func.func @lrn_images(
func.func @lrn_images(%x: tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>) -> tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>> {
  // CHECK: "relax.lrn"(%{{.*}}) {alpha = 2.000000e-05 : f64, bias = 2.000000e+00 : f64, size = 5 : i64} :
  %0 = "relax.lrn"(%x) {alpha = 2.000000e-05 : f64, bias = 2.000000e+00 : f64, size = 5 : i64} : (tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>) -> tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>
  return %0 : tensor<?x6x?x?xf32, #relax.dims<["b", 6, "h", "w"]>>
}

// CHECK-LABEL: func.func @lp_normalize_rows(
func.func @lp_normalize_rows(%x: tensor<?x6xf32, #relax.dims<["b", 6]>>) -> tensor<?x6xf32, #relax.dims<["b", 6]>> {
  // CHECK: "relax.lp_normalize"(%{{.*}}) :
  %0 = "relax.lp_normalize"(%x) : (tensor<?x6xf32, #relax.dims<["b", 6]>>) -> tensor<?x6xf32, #relax.dims<["b", 6]>>
  // CHECK: "relax.lp_normalize"(%{{.*}}) {axis = 0 : i64, p = 1 : i64} :
  %1 = "relax.lp_normalize"(%x) {axis = 0 : i64, p = 1 : i64} : (tensor<?x6xf32, #relax.dims<["b", 6]>>) -> tensor<?x6xf32, #relax.dims<["b", 6]>>
  return %1 : tensor<?x6xf32, #relax.dims<["b", 6]>>
}
