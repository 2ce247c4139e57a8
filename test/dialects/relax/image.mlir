// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Resampling.

// CHECK-LABEL: func.func @resize_nearest(
func.func @resize_nearest(%x: tensor<?x3x4x4xf32, #relax.dims<["b", 3, 4, 4]>>) -> tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>> {
  // CHECK: "relax.resize"(%{{.*}}) {shape = ["b", 3, 8, 8]} :
  %0 = "relax.resize"(%x) {shape = ["b", 3, 8, 8]} : (tensor<?x3x4x4xf32, #relax.dims<["b", 3, 4, 4]>>) -> tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>>
  return %0 : tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>>
}

// CHECK-LABEL: func.func @resize_scaled(
func.func @resize_scaled(%x: tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>> {
  // CHECK: "relax.resize"(%{{.*}}) {coordinates = "pytorch_half_pixel", mode = "linear", scales = array<f64: 1.000000e+00, 1.000000e+00, 2.000000e+00, 2.000000e+00>, shape = ["b", 3, "2*h", "2*w"]} :
  %0 = "relax.resize"(%x) {coordinates = "pytorch_half_pixel", mode = "linear", scales = array<f64: 1.000000e+00, 1.000000e+00, 2.000000e+00, 2.000000e+00>, shape = ["b", 3, "2*h", "2*w"]} : (tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>>
  return %0 : tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>>
}

// CHECK-LABEL: func.func @resize_cubic(
func.func @resize_cubic(%x: tensor<1x1x4x4xf32>) -> tensor<1x1x7x9xf32> {
  // CHECK: "relax.resize"(%{{.*}}) {coordinates = "align_corners", cubic_coeff = -5.000000e-01 : f64, exclude_outside = true, mode = "cubic", shape = [1, 1, 7, 9]} :
  %0 = "relax.resize"(%x) {coordinates = "align_corners", cubic_coeff = -5.000000e-01 : f64, exclude_outside = true, mode = "cubic", shape = [1, 1, 7, 9]} : (tensor<1x1x4x4xf32>) -> tensor<1x1x7x9xf32>
  return %0 : tensor<1x1x7x9xf32>
}

// CHECK-LABEL: func.func @resize_crop(
func.func @resize_crop(%x: tensor<4x4xf32>) -> tensor<3x3xf32> {
  // CHECK: "relax.resize"(%{{.*}}) {coordinates = "tf_crop_and_resize", extrapolation = 1.000000e+01 : f64, mode = "linear", roi = array<f64: 1.000000e-01, 2.000000e-01, 8.000000e-01, 9.000000e-01>, shape = [3, 3]} :
  %0 = "relax.resize"(%x) {coordinates = "tf_crop_and_resize", extrapolation = 1.000000e+01 : f64, mode = "linear", roi = array<f64: 1.000000e-01, 2.000000e-01, 8.000000e-01, 9.000000e-01>, shape = [3, 3]} : (tensor<4x4xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// CHECK-LABEL: func.func @resize_coordinates(
func.func @resize_coordinates(%x: tensor<1x1x3xui8>) -> tensor<1x1x5xui8> {
  // CHECK: "relax.resize"(%{{.*}}) {coordinates = "half_pixel_symmetric", nearest = "floor", shape = [1, 1, 5]} :
  %0 = "relax.resize"(%x) {coordinates = "half_pixel_symmetric", nearest = "floor", shape = [1, 1, 5]} : (tensor<1x1x3xui8>) -> tensor<1x1x5xui8>
  // CHECK: "relax.resize"(%{{.*}}) {coordinates = "asymmetric", nearest = "ceil", shape = [1, 1, 5]} :
  %1 = "relax.resize"(%x) {coordinates = "asymmetric", nearest = "ceil", shape = [1, 1, 5]} : (tensor<1x1x3xui8>) -> tensor<1x1x5xui8>
  // CHECK: "relax.resize"(%{{.*}}) {coordinates = "tf_half_pixel_for_nn", nearest = "round_prefer_ceil", shape = [1, 1, 5]} :
  %2 = "relax.resize"(%x) {coordinates = "tf_half_pixel_for_nn", nearest = "round_prefer_ceil", shape = [1, 1, 5]} : (tensor<1x1x3xui8>) -> tensor<1x1x5xui8>
  return %2 : tensor<1x1x5xui8>
}

// CHECK-LABEL: func.func @grid_sample2d(
func.func @grid_sample2d(%x: tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, %grid: tensor<?x6x7x2xf32, #relax.dims<["b", 6, 7, 2]>>) -> tensor<?x3x6x7xf32, #relax.dims<["b", 3, 6, 7]>> {
  // CHECK: "relax.grid_sample"(%{{.*}}, %{{.*}}) :
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>, tensor<?x6x7x2xf32, #relax.dims<["b", 6, 7, 2]>>) -> tensor<?x3x6x7xf32, #relax.dims<["b", 3, 6, 7]>>
  return %0 : tensor<?x3x6x7xf32, #relax.dims<["b", 3, 6, 7]>>
}

// CHECK-LABEL: func.func @grid_sample_options(
func.func @grid_sample_options(%x: tensor<1x3x4x4x4xf32>, %grid: tensor<1x?x5x6x3xf32, #relax.dims<[1, "n", 5, 6, 3]>>) -> tensor<1x3x?x5x6xf32, #relax.dims<[1, 3, "n", 5, 6]>> {
  // CHECK: "relax.grid_sample"(%{{.*}}, %{{.*}}) {align_corners = true, mode = "nearest", padding_mode = "border"} :
  %0 = "relax.grid_sample"(%x, %grid) {align_corners = true, mode = "nearest", padding_mode = "border"} : (tensor<1x3x4x4x4xf32>, tensor<1x?x5x6x3xf32, #relax.dims<[1, "n", 5, 6, 3]>>) -> tensor<1x3x?x5x6xf32, #relax.dims<[1, 3, "n", 5, 6]>>
  return %0 : tensor<1x3x?x5x6xf32, #relax.dims<[1, 3, "n", 5, 6]>>
}
