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

// -----

func.func @col2im_4(%x0: tensor<1x8x9xi1>) {
  // expected-error@+1 {{'relax.col2im' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.col2im"(%x0) {image = [4, 4], operandSegmentSizes = array<i32: 1, 0>, window = [2]} : (tensor<1x8x9xi1>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_5(%x0: tensor<9xf32>) {
  // expected-error@+1 {{'relax.col2im' op operand must have rank 3, got f32[9]}}
  %0 = "relax.col2im"(%x0) {image = [4, 4], operandSegmentSizes = array<i32: 1, 0>, window = [2, 2]} : (tensor<9xf32>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_6(%x: tensor<1x4x4xf32>) {
  // expected-error@+1 {{'relax.col2im' op image must be sizes, got []}}
  %0 = "relax.col2im"(%x) {image = [], window = []} : (tensor<1x4x4xf32>) -> tensor<1x4xf32>
  return
}

// -----

func.func @col2im_7(%x0: tensor<1x9x9xf32>) {
  // expected-error@+1 {{'relax.col2im' op image must be sizes of 1 or more, got [4, 0]}}
  %0 = "relax.col2im"(%x0) {image = [4, 0], operandSegmentSizes = array<i32: 1, 0>, window = [2, 2]} : (tensor<1x9x9xf32>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_8(%x0: tensor<1x8x9xf32>, %x1: tensor<2xi1>) {
  // expected-error@+1 {{'relax.col2im' op sizes must be integer or unsigned integer, got bool}}
  %0 = "relax.col2im"(%x0, %x1) {channels = 2, image = [4, 4], operandSegmentSizes = array<i32: 1, 1>} : (tensor<1x8x9xf32>, tensor<2xi1>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_9(%x0: tensor<1x8x9xf32>, %x1: tensor<i64>) {
  // expected-error@+1 {{'relax.col2im' op sizes must have rank 1, got i64[]}}
  %0 = "relax.col2im"(%x0, %x1) {channels = 2, image = [4, 4], operandSegmentSizes = array<i32: 1, 1>} : (tensor<1x8x9xf32>, tensor<i64>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_10(%x0: tensor<1x8x9xf32>, %x1: tensor<2xi64>) {
  // expected-error@+1 {{'relax.col2im' op sizes i64[2] and the dims of an image must agree, got 2 and 1}}
  %0 = "relax.col2im"(%x0, %x1) {channels = 2, image = [4], operandSegmentSizes = array<i32: 1, 1>} : (tensor<1x8x9xf32>, tensor<2xi64>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_11(%x0: tensor<1x8x9xf32>) {
  // expected-error@+1 {{'relax.col2im' op window must be the sizes of 1 dims, channels be left out, got [2, 2]}}
  %0 = "relax.col2im"(%x0) {image = [4], operandSegmentSizes = array<i32: 1, 0>, window = [2, 2]} : (tensor<1x8x9xf32>) -> tensor<1x2x4x4xf32>
  return
}

// -----

func.func @col2im_12(%x0: tensor<5x12x20xf32>) {
  // expected-error@+1 {{'relax.col2im' op window must be sizes of 1 or more, got [0, 3]}}
  %0 = "relax.col2im"(%x0) {image = [5, 7], operandSegmentSizes = array<i32: 1, 0>, window = [0, 3]} : (tensor<5x12x20xf32>) -> tensor<?x2x5x7xf32, #relax.dims<["b", 2, 5, 7]>>
  return
}

// -----

func.func @deform_conv_2(%x0: tensor<1x4x6x6xi8>, %x1: tensor<8x4x3x3xf32>, %x2: tensor<1x18x4x4xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op operand must be floating point, got i8}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6x6xi8>, tensor<8x4x3x3xf32>, tensor<1x18x4x4xf32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_3(%x0: tensor<1x4x6x6xf32>, %x1: tensor<8x4x4x3xf32>, %x2: tensor<1x18x4xi1>) {
  // expected-error@+1 {{'relax.deform_conv' op the operands must have one element type, got f32, f32, bool}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6x6xf32>, tensor<8x4x4x3xf32>, tensor<1x18x4xi1>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_4(%x0: tensor<1x4x6xf32>, %x1: tensor<8x4x3xf32>, %x2: tensor<1x18x4x4xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op offset must have rank 3, got f32[1, 18, 4, 4]}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6xf32>, tensor<8x4x3xf32>, tensor<1x18x4x4xf32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_5(%x0: tensor<1x4x6x6xf32>, %x1: tensor<8x2x3x3xf32>, %x2: tensor<1x18x4x4xf32>, %x3: tensor<1x9x4x4xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op groups and offset_groups must be at least 1, got 0 and 1}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2, %x3) {groups = 0, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<1x4x6x6xf32>, tensor<8x2x3x3xf32>, tensor<1x18x4x4xf32>, tensor<1x9x4x4xf32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_6(%x0: tensor<1x4x6x6xf32>, %x1: tensor<8x5x3x3xf32>, %x2: tensor<1x18x4x4xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op the channels of f32[1, 4, 6, 6] and those of f32[8, 5, 3, 3] must agree, got 4 and 5}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6x6xf32>, tensor<8x5x3x3xf32>, tensor<1x18x4x4xf32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_7(%x0: tensor<1x4x6x6xf32>, %x1: tensor<8x2x3x3xf32>, %x2: tensor<1x18x4x4xf32>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.deform_conv' op the channels of f32[1, 4, 6, 6] must be a multiple of groups 2 and offset_groups 3}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2, %x3) {groups = 2, offset_groups = 3, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x4x6x6xf32>, tensor<8x2x3x3xf32>, tensor<1x18x4x4xf32>, tensor<f32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_8(%x0: tensor<1x4x6x6xf32>, %x1: tensor<8x2x3x3xf32>, %x2: tensor<1x18x4x4xf32>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.deform_conv' op bias must have rank 1, got f32[]}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2, %x3) {groups = 2, offset_groups = 1, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x4x6x6xf32>, tensor<8x2x3x3xf32>, tensor<1x18x4x4xf32>, tensor<f32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_9(%x0: tensor<1x4x6x6xf32>, %x1: tensor<8x2x3x3xf32>, %x2: tensor<1x18x4x4xf32>, %x3: tensor<5xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op bias f32[5] and the out channels of f32[8, 2, 3, 3] must agree, got 5 and 8}}
  %0 = "relax.deform_conv"(%x0, %x1, %x2, %x3) {groups = 2, offset_groups = 1, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x4x6x6xf32>, tensor<8x2x3x3xf32>, tensor<1x18x4x4xf32>, tensor<5xf32>) -> tensor<1x8x4x4xf32>
  return
}

// -----

func.func @deform_conv_10(%x: tensor<1x4x0x6xf32>, %w: tensor<8x4x1x1xf32>, %o: tensor<1x2x2x6xf32>) {
  // expected-error@+1 {{'relax.deform_conv' op axis 2 of the operand f32[1, 4, 0, 6], which is sampled, is empty}}
  %0 = "relax.deform_conv"(%x, %w, %o) {padding = array<i64: 1, 0, 1, 0>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x0x6xf32>, tensor<8x4x1x1xf32>, tensor<1x2x2x6xf32>) -> tensor<1x8x2x6xf32>
  return
}

// -----

func.func @non_max_suppression_1(%x0: tensor<1x6x4xi64>, %x1: tensor<5x6xf32>, %x2: tensor<i64>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op boxes must be floating point, got i64}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = [2]} : (tensor<1x6x4xi64>, tensor<5x6xf32>, tensor<i64>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_2(%x0: tensor<1x6x4xf32>, %x1: tensor<1x1xf32>, %x2: tensor<i64>, %x3: tensor<i1>) {
  // expected-error@+1 {{'relax.non_max_suppression' op the operands must have one element type, got f32, f32, bool}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = [2]} : (tensor<1x6x4xf32>, tensor<1x1xf32>, tensor<i64>, tensor<i1>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_3(%x0: tensor<1x6x4xf32>, %x1: tensor<1x1x6xf32>, %x2: tensor<f32>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op limit must be integer or unsigned integer, got f32}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = [2]} : (tensor<1x6x4xf32>, tensor<1x1x6xf32>, tensor<f32>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_4(%x0: tensor<1x6xf32>, %x1: tensor<1x1x6xf32>, %x2: tensor<i64>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op boxes must have rank 3, got f32[1, 6]}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = []} : (tensor<1x6xf32>, tensor<1x1x6xf32>, tensor<i64>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_5(%x0: tensor<1x6x4xf32>, %x1: tensor<1x6xf32>, %x2: tensor<i64>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op scores must have rank 3, got f32[1, 6]}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = []} : (tensor<1x6x4xf32>, tensor<1x6xf32>, tensor<i64>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_6(%x0: tensor<1x6x4xf32>, %x1: tensor<1x1x6xf32>, %x2: tensor<i64>, %x3: tensor<3xf32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op overlap must have rank 0, got f32[3]}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = []} : (tensor<1x6x4xf32>, tensor<1x1x6xf32>, tensor<i64>, tensor<3xf32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_7(%x0: tensor<2x6x4xf32>, %x1: tensor<1x1x6xf32>, %x2: tensor<i64>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op the images of f32[2, 6, 4] and f32[1, 1, 6] must agree, got 2 and 1}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = []} : (tensor<2x6x4xf32>, tensor<1x1x6xf32>, tensor<i64>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_8(%x0: tensor<1x0x4xf32>, %x1: tensor<1x1x6xf32>, %x2: tensor<i8>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op the boxes of f32[1, 0, 4] and f32[1, 1, 6] must agree, got 0 and 6}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = []} : (tensor<1x0x4xf32>, tensor<1x1x6xf32>, tensor<i8>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @non_max_suppression_9(%x0: tensor<1x6x4xf32>, %x1: tensor<1x1x6xf32>, %x2: tensor<i64>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.non_max_suppression' op most must be one dim, got []}}
  %0:2 = "relax.non_max_suppression"(%x0, %x1, %x2, %x3) {most = []} : (tensor<1x6x4xf32>, tensor<1x1x6xf32>, tensor<i64>, tensor<f32>) -> (tensor<2x3xi64>, tensor<i64>)
  return
}

// -----

func.func @roi_align_3(%x0: tensor<2x3x?x9xf32, #relax.dims<[2, 3, "h", 9]>>, %x1: tensor<?x4xf32, #relax.dims<["r", 4]>>, %x2: tensor<i64>) {
  // expected-error@+1 {{'relax.roi_align' op height and width must be at least 1 and samples 0, got -1, 1, 0}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) {height = -1, mode = "max"} : (tensor<2x3x?x9xf32, #relax.dims<[2, 3, "h", 9]>>, tensor<?x4xf32, #relax.dims<["r", 4]>>, tensor<i64>) -> tensor<?x3x2x1xf32, #relax.dims<["r", 3, 2, 1]>>
  return
}

// -----

func.func @roi_align_4(%x0: tensor<1x2x8x8xi8>, %x1: tensor<3x4xf32>, %x2: tensor<i64>) {
  // expected-error@+1 {{'relax.roi_align' op operand must be floating point, got i8}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x8x8xi8>, tensor<3x4xf32>, tensor<i64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_5(%x0: tensor<1x2x8xf32>, %x1: tensor<3x4xf32>, %x2: tensor<i64>) {
  // expected-error@+1 {{'relax.roi_align' op operand must have rank 4, got f32[1, 2, 8]}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x8xf32>, tensor<3x4xf32>, tensor<i64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_6(%x0: tensor<1x2x8x8xf32>, %x1: tensor<f64>, %x2: tensor<3xi64>) {
  // expected-error@+1 {{'relax.roi_align' op operand and rois must have one element type, got f32, f64}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x8x8xf32>, tensor<f64>, tensor<3xi64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_7(%x0: tensor<1x2x8x8xf32>, %x1: tensor<3xf32>, %x2: tensor<3xi8>) {
  // expected-error@+1 {{'relax.roi_align' op rois must have rank 2, got f32[3]}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x8x8xf32>, tensor<3xf32>, tensor<3xi8>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_8(%x0: tensor<1x2x8x8xf32>, %x1: tensor<3x4xf32>, %x2: tensor<3xi1>) {
  // expected-error@+1 {{'relax.roi_align' op batch must be integer or unsigned integer, got bool}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x8x8xf32>, tensor<3x4xf32>, tensor<3xi1>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_9(%x0: tensor<1x2x8x8xf32>, %x1: tensor<3x4xf32>, %x2: tensor<i64>) {
  // expected-error@+1 {{'relax.roi_align' op batch must have rank 1, got i64[]}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x8x8xf32>, tensor<3x4xf32>, tensor<i64>) -> tensor<3x2x1x1xf32>
  return
}

// -----

func.func @roi_align_10(%x0: tensor<1x2x0x8xf32>, %x1: tensor<3x4xf32>, %x2: tensor<3xi64>) {
  // expected-error@+1 {{'relax.roi_align' op axis 2 of the operand f32[1, 2, 0, 8], which has regions, is empty}}
  %0 = "relax.roi_align"(%x0, %x1, %x2) : (tensor<1x2x0x8xf32>, tensor<3x4xf32>, tensor<3xi64>) -> tensor<3x2x1x1xf32>
  return
}
