// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @col2im_1(%x: tensor<1x12x20xf32>) {
  // expected-error@+1 {{'relax.col2im' op the last dim of f32[1, 12, 20] and the windows of such an image must agree, got 20 and 16}}
  %0 = "relax.col2im"(%x) {image = [5, 5], window = [2, 2]} : (tensor<1x12x20xf32>) -> tensor<1x3x5x5xf32>
  return
}

// -----

func.func @col2im_2(%x: tensor<1x10x16xf32>) {
  // expected-error@+1 {{'relax.col2im' op dim 1 of f32[1, 10, 16] must be a multiple of the 4 elements of a window}}
  %0 = "relax.col2im"(%x) {image = [5, 5], window = [2, 2]} : (tensor<1x10x16xf32>) -> tensor<1x2x5x5xf32>
  return
}

// -----

func.func @col2im_3(%x: tensor<1x12x16xf32>, %sizes: tensor<2xi64>) {
  // expected-error@+1 {{'relax.col2im' op with sizes, window must be left out, and channels be given}}
  %0 = "relax.col2im"(%x, %sizes) {image = [5, 5]} : (tensor<1x12x16xf32>, tensor<2xi64>) -> tensor<1x3x5x5xf32>
  return
}

// -----

func.func @roi_align_1(%x: tensor<1x2x8x8xf32>, %rois: tensor<3x5xf32>, %batch: tensor<3xi64>) {
  // expected-error@+1 {{'relax.roi_align' op the last dim of rois f32[3, 5] and the numbers of a region must agree, got 5 and 4}}
  %0 = "relax.roi_align"(%x, %rois, %batch) : (tensor<1x2x8x8xf32>, tensor<3x5xf32>, tensor<3xi64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_2(%x: tensor<1x2x8x8xf32>, %rois: tensor<3x4xf32>, %batch: tensor<2xi64>) {
  // expected-error@+1 {{'relax.roi_align' op the regions of f32[3, 4] and batch i64[2] must agree, got 3 and 2}}
  %0 = "relax.roi_align"(%x, %rois, %batch) : (tensor<1x2x8x8xf32>, tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @deform_conv_1(%x: tensor<1x4x6x6xf32>, %w: tensor<8x4x3x3xf32>, %offset: tensor<1x9x4x4xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op dim 1 of offset f32[1, 9, 4, 4] and what the windows need must agree, got 9 and 18}}
  %0 = "relax.deform_conv"(%x, %w, %offset) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, tensor<1x9x4x4xf32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @boxes_1(%boxes: tensor<2x10x5xf32>, %scores: tensor<2x3x10xf32>, %limit: tensor<i64>, %overlap: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op the last dim of boxes f32[2, 10, 5] and the numbers of a box must agree, got 5 and 4}}
  %0:2 = "relax.non_max_suppression"(%boxes, %scores, %limit, %overlap) {most = [4]} : (tensor<2x10x5xf32>, tensor<2x3x10xf32>, tensor<i64>, tensor<f32>) -> (tensor<24x3xi64>, tensor<i64>)
  return
}

// -----

func.func @det_1(%x: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.det' op the last two dims of f32[3, 4] must agree, got 3 and 4}}
  %0 = "relax.det"(%x) : (tensor<3x4xf32>) -> tensor<f32>
  return
}

// -----

func.func @cholesky_1(%x: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.cholesky' op the last two dims of f32[3, 4] must agree, got 3 and 4}}
  %0 = "relax.cholesky"(%x) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @triangular_solve_1(%x: tensor<3x3xf32>, %y: tensor<4x2xf32>) {
  // expected-error@+1 {{'relax.triangular_solve' op dim 0 of f32[3, 3] and f32[4, 2] must agree, got 3 and 4}}
  %0 = "relax.triangular_solve"(%x, %y) : (tensor<3x3xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return
}

// -----

func.func @triangular_solve_2(%x: tensor<3x3xf32>, %y: tensor<3xf32>) {
  // expected-error@+1 {{'relax.triangular_solve' op the right side must have the rank and element type of f32[3, 3], got f32[3]}}
  %0 = "relax.triangular_solve"(%x, %y) : (tensor<3x3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @lu_1(%x: tensor<3x3xi32>) {
  // expected-error@+1 {{'relax.lu' op operand must be}}
  %0:2 = "relax.lu"(%x) : (tensor<3x3xi32>) -> (tensor<3x3xi32>, tensor<3xi32>)
  return
}

// -----

func.func @ngrams_1(%x: tensor<2x9xi64>, %grams: tensor<5x2xi32>) {
  // expected-error@+1 {{'relax.count_ngrams' op operand and grams must have one element type, got i64, i32}}
  %0 = "relax.count_ngrams"(%x, %grams) : (tensor<2x9xi64>, tensor<5x2xi32>) -> tensor<2x5xi64>
  return
}

// -----

func.func @random_1(%seed: tensor<f32>) {
  // expected-error@+1 {{'relax.random_uniform' op seed must be integer or unsigned integer, got f32}}
  %0 = "relax.random_uniform"(%seed) {shape = [3]} : (tensor<f32>) -> tensor<3xf32>
  return
}

// -----

func.func @max_roi_pool_1(%x: tensor<1x2x8x8xf32>, %rois: tensor<3x5xf32>, %batch: tensor<3xi64>) {
  // expected-error@+1 {{'relax.max_roi_pool' op the last dim of rois f32[3, 5] and the numbers of a region must agree, got 5 and 4}}
  %0 = "relax.max_roi_pool"(%x, %rois, %batch) : (tensor<1x2x8x8xf32>, tensor<3x5xf32>, tensor<3xi64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @max_roi_pool_2(%x: tensor<1x2x8x8xf32>, %rois: tensor<3x4xf32>, %batch: tensor<3xi64>) {
  // expected-error@+1 {{'relax.max_roi_pool' op height and width must be at least 1, got 2, 0}}
  %0 = "relax.max_roi_pool"(%x, %rois, %batch) {height = 2, width = 0} : (tensor<1x2x8x8xf32>, tensor<3x4xf32>, tensor<3xi64>) -> tensor<3x2x2x0xf32>
  return
}
