// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Windows of a known size are gathered by blocks; of sizes that only run time knows, scattered by loops.

// CHECK-LABEL: func.func @col2im_of_image
// CHECK:       relax.call_tir{{.*}}callee = @col2im
// CHECK:       func.func private @col2im
// CHECK:       "tir.block"{{.*}}
// CHECK:       domain = [1, 2, 4, 4, 2, 2]{{.*}}name = "col2im"
func.func @col2im_of_image(%x: tensor<1x8x9xf32>) -> tensor<1x2x4x4xf32> {
  %0 = "relax.col2im"(%x) {image = [4, 4], window = [2, 2], operandSegmentSizes = array<i32: 1, 0>} : (tensor<1x8x9xf32>) -> tensor<1x2x4x4xf32>
  return %0 : tensor<1x2x4x4xf32>
}

// -----

// CHECK-LABEL: func.func @col2im_of_sizes
// CHECK:       relax.call_tir{{.*}}callee = @col2im
// CHECK:       func.func private @col2im
// CHECK:       scf.for
// CHECK:       memref.load
// CHECK:       scf.if
func.func @col2im_of_sizes(%x: tensor<1x8x9xf32>, %sizes: tensor<2xi64>) -> tensor<1x2x4x4xf32> {
  %0 = "relax.col2im"(%x, %sizes) {image = [4, 4], channels = 2, operandSegmentSizes = array<i32: 1, 1>} : (tensor<1x8x9xf32>, tensor<2xi64>) -> tensor<1x2x4x4xf32>
  return %0 : tensor<1x2x4x4xf32>
}

// -----

// The columns, then a product of matrices.
// CHECK-LABEL: func.func @deform_conv
// CHECK:       relax.call_tir{{.*}}callee = @deform_columns
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       tir.floor
func.func @deform_conv(%x: tensor<1x4x6x6xf32>, %w: tensor<8x4x3x3xf32>, %offset: tensor<1x18x4x4xf32>) -> tensor<1x8x4x4xf32> {
  %0 = "relax.deform_conv"(%x, %w, %offset) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, tensor<1x18x4x4xf32>) -> tensor<1x8x4x4xf32>
  return %0 : tensor<1x8x4x4xf32>
}

// -----

// CHECK-LABEL: func.func @loops
// CHECK-DAG:   callee = @roi_align
// CHECK-DAG:   callee = @non_max_suppression
// CHECK-DAG:   callee = @det
// CHECK-DAG:   callee = @random_normal
// CHECK:       scf.while
func.func @loops(%x: tensor<1x2x8x8xf32>, %rois: tensor<3x4xf32>, %batch: tensor<3xi64>, %boxes: tensor<1x6x4xf32>, %scores: tensor<1x1x6xf32>, %n: tensor<i64>, %t: tensor<f32>) -> (tensor<3x2x1x1xf32>, tensor<2x3xi64>, tensor<1x2xf32>, tensor<4xf32>) {
  %0 = "relax.roi_align"(%x, %rois, %batch) : (tensor<1x2x8x8xf32>, tensor<3x4xf32>, tensor<3xi64>) -> tensor<3x2x1x1xf32>
  %1:2 = "relax.non_max_suppression"(%boxes, %scores, %n, %t) {most = [2]} : (tensor<1x6x4xf32>, tensor<1x1x6xf32>, tensor<i64>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  %2 = "relax.det"(%x) : (tensor<1x2x8x8xf32>) -> tensor<1x2xf32>
  %3 = "relax.random_normal"(%n) {shape = [4]} : (tensor<i64>) -> tensor<4xf32>
  return %0, %1#0, %2, %3 : tensor<3x2x1x1xf32>, tensor<2x3xi64>, tensor<1x2xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @ngrams
// CHECK:       domain = [2, 3, 2, 9]{{.*}}name = "count_ngrams"
func.func @ngrams(%x: tensor<2x9xi64>, %grams: tensor<3x2xi64>) -> tensor<2x3xi64> {
  %0 = "relax.count_ngrams"(%x, %grams) {skips = 1} : (tensor<2x9xi64>, tensor<3x2xi64>) -> tensor<2x3xi64>
  return %0 : tensor<2x3xi64>
}
