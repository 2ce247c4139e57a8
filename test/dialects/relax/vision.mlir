// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Patches, regions, boxes; determinants, n-grams, random numbers.

// CHECK-LABEL: func.func @col2im(
func.func @col2im(%x: tensor<?x12x20xf32, #relax.dims<["b", 12, 20]>>, %sizes: tensor<2xi64>) {
  // CHECK: "relax.col2im"(%{{.*}}) {image = [5, 7], {{.*}}window = [2, 3]} : {{.*}} -> tensor<?x2x5x7xf32, #relax.dims<["b", 2, 5, 7]>>
  %0 = "relax.col2im"(%x) {image = [5, 7], window = [2, 3], operandSegmentSizes = array<i32: 1, 0>} : (tensor<?x12x20xf32, #relax.dims<["b", 12, 20]>>) -> tensor<?x2x5x7xf32, #relax.dims<["b", 2, 5, 7]>>
  // CHECK: "relax.col2im"(%{{.*}}, %{{.*}}) {channels = 2 : i64, image = [5, 7]
  %1 = "relax.col2im"(%x, %sizes) {channels = 2, image = [5, 7], operandSegmentSizes = array<i32: 1, 1>} : (tensor<?x12x20xf32, #relax.dims<["b", 12, 20]>>, tensor<2xi64>) -> tensor<?x2x5x7xf32, #relax.dims<["b", 2, 5, 7]>>
  return
}

// CHECK-LABEL: func.func @roi_align(
func.func @roi_align(%x: tensor<2x3x?x9xf32, #relax.dims<[2, 3, "h", 9]>>, %rois: tensor<?x4xf32, #relax.dims<["r", 4]>>, %batch: tensor<?xi64, #relax.dims<["r"]>>) {
  // CHECK: "relax.roi_align"{{.*}} {height = 2 : i64, mode = "max"} : {{.*}} -> tensor<?x3x2x1xf32, #relax.dims<["r", 3, 2, 1]>>
  %0 = "relax.roi_align"(%x, %rois, %batch) {height = 2, mode = "max"} : (tensor<2x3x?x9xf32, #relax.dims<[2, 3, "h", 9]>>, tensor<?x4xf32, #relax.dims<["r", 4]>>, tensor<?xi64, #relax.dims<["r"]>>) -> tensor<?x3x2x1xf32, #relax.dims<["r", 3, 2, 1]>>
  return
}

// CHECK-LABEL: func.func @max_roi_pool(
func.func @max_roi_pool(%x: tensor<2x3x?x9xf32, #relax.dims<[2, 3, "h", 9]>>, %rois: tensor<?x4xf32, #relax.dims<["r", 4]>>, %batch: tensor<?xi64, #relax.dims<["r"]>>) {
  // CHECK: "relax.max_roi_pool"{{.*}} {height = 2 : i64, scale = 5.000000e-01 : f32} : {{.*}} -> tensor<?x3x2x1xf32, #relax.dims<["r", 3, 2, 1]>>
  %0 = "relax.max_roi_pool"(%x, %rois, %batch) {height = 2, scale = 0.5 : f32} : (tensor<2x3x?x9xf32, #relax.dims<[2, 3, "h", 9]>>, tensor<?x4xf32, #relax.dims<["r", 4]>>, tensor<?xi64, #relax.dims<["r"]>>) -> tensor<?x3x2x1xf32, #relax.dims<["r", 3, 2, 1]>>
  return
}

// CHECK-LABEL: func.func @deform_conv(
func.func @deform_conv(%x: tensor<1x4x6x6xf32>, %w: tensor<8x2x3x3xf32>, %offset: tensor<1x18x4x4xf32>, %mask: tensor<1x9x4x4xf32>) {
  // CHECK: "relax.deform_conv"({{.*}}) {groups = 2 : i64, {{.*}}} : {{.*}} -> tensor<1x8x4x4xf32>
  %0 = "relax.deform_conv"(%x, %w, %offset, %mask) {groups = 2, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<1x4x6x6xf32>, tensor<8x2x3x3xf32>, tensor<1x18x4x4xf32>, tensor<1x9x4x4xf32>) -> tensor<1x8x4x4xf32>
  return
}

// CHECK-LABEL: func.func @boxes(
func.func @boxes(%boxes: tensor<2x10x4xf32>, %scores: tensor<2x3x10xf32>, %limit: tensor<i64>, %overlap: tensor<f32>) {
  // CHECK: "relax.non_max_suppression"({{.*}}) {most = [4]} : {{.*}} -> (tensor<24x3xi64>, tensor<i64>)
  %0:2 = "relax.non_max_suppression"(%boxes, %scores, %limit, %overlap) {most = [4]} : (tensor<2x10x4xf32>, tensor<2x3x10xf32>, tensor<i64>, tensor<f32>) -> (tensor<24x3xi64>, tensor<i64>)
  return
}

// CHECK-LABEL: func.func @factors(
func.func @factors(%x: tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>, %y: tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>) {
  // CHECK: "relax.cholesky"{{.*}} -> tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>
  %0 = "relax.cholesky"(%x) : (tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>) -> tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>
  // CHECK: "relax.triangular_solve"{{.*}} {lower = false} : {{.*}} -> tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>
  %1 = "relax.triangular_solve"(%x, %y) {lower = false} : (tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>, tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>) -> tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>
  // CHECK: "relax.lu"{{.*}} -> (tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>, tensor<?x3xi32, #relax.dims<["b", 3]>>)
  %2:2 = "relax.lu"(%y) : (tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>) -> (tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>, tensor<?x3xi32, #relax.dims<["b", 3]>>)
  return
}

// CHECK-LABEL: func.func @numbers(
func.func @numbers(%x: tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>, %words: tensor<?x9xi64, #relax.dims<["b", 9]>>, %grams: tensor<5x2xi64>, %seed: tensor<i64>) {
  // CHECK: "relax.det"{{.*}} -> tensor<?xf32, #relax.dims<["b"]>>
  %0 = "relax.det"(%x) : (tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>) -> tensor<?xf32, #relax.dims<["b"]>>
  // CHECK: "relax.inverse"{{.*}} -> tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>
  %4 = "relax.inverse"(%x) : (tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>) -> tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>
  // CHECK: "relax.count_ngrams"{{.*}} {skips = 2 : i64} : {{.*}} -> tensor<?x5xi64, #relax.dims<["b", 5]>>
  %1 = "relax.count_ngrams"(%words, %grams) {skips = 2} : (tensor<?x9xi64, #relax.dims<["b", 9]>>, tensor<5x2xi64>) -> tensor<?x5xi64, #relax.dims<["b", 5]>>
  // CHECK: "relax.random_uniform"(%{{.*}}) {high = 2.000000e+00 : f64, shape = [3, 4]} : (tensor<i64>) -> tensor<3x4xf32>
  %2 = "relax.random_uniform"(%seed) {shape = [3, 4], high = 2.0} : (tensor<i64>) -> tensor<3x4xf32>
  // CHECK: "relax.random_normal"(%{{.*}}) {dtype = f64, shape = [3]} : (tensor<i64>) -> tensor<3xf64>
  %3 = "relax.random_normal"(%seed) {shape = [3], dtype = f64} : (tensor<i64>) -> tensor<3xf64>
  return
}
