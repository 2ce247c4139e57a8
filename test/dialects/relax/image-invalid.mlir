// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @resize_1(%x: tensor<1x1x4x4xf32>) {
  // expected-error@+1 {{'relax.resize' op shape must have a dim per axis of f32[1, 1, 4, 4], got [8, 8]}}
  %0 = "relax.resize"(%x) {shape = [8, 8]} : (tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  return
}

// -----

func.func @resize_2(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op scales must be one positive number per axis of f32[1, 1, 4], got [2.0]}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], scales = array<f64: 2.0>} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_3(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op scales must be one positive number per axis of f32[1, 1, 4], got [1.0, 1.0, 0.0]}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], scales = array<f64: 1.0, 1.0, 0.0>} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_4(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op attribute 'mode' must be one of 'nearest', 'linear', 'cubic', got 'area'}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], mode = "area"} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_5(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op attribute 'coordinates' must be one of 'half_pixel', 'half_pixel_symmetric', 'pytorch_half_pixel', 'align_corners', 'asymmetric', 'pytorch_asymmetric', 'tf_half_pixel_for_nn', 'tf_crop_and_resize', got 'corners'}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], coordinates = "corners"} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_6(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op attribute 'nearest' must be one of 'round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil', got 'round'}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], nearest = "round"} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_7(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op roi must be 6 numbers when coordinates is 'tf_crop_and_resize', and empty otherwise, got []}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], coordinates = "tf_crop_and_resize"} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_8(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op roi must be 6 numbers when coordinates is 'tf_crop_and_resize', and empty otherwise, got [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8], roi = array<f64: 0.0, 0.0, 0.0, 1.0, 1.0, 1.0>} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_9(%x: tensor<1x1x4xi1>) {
  // expected-error@+1 {{'relax.resize' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8]} : (tensor<1x1x4xi1>) -> tensor<1x1x4xi1>
  return
}

// -----

func.func @resize_10(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op result is declared f32[1, 1, 4], but its operands and attributes make it f32[1, 1, 8]}}
  %0 = "relax.resize"(%x) {shape = [1, 1, 8]} : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @resize_11(%x: tensor<1x1x4xf32>) {
  // expected-error@+1 {{'relax.resize' op needs the attribute 'shape', dims such as [2, "batch"]}}
  %0 = "relax.resize"(%x) : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  return
}

// -----

func.func @grid_sample_1(%x: tensor<1x3x4xf32>, %grid: tensor<1x5x1xi32>) {
  // expected-error@+1 {{'relax.grid_sample' op grid must be floating point, got i32}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<1x3x4xf32>, tensor<1x5x1xi32>) -> tensor<1x3x4xf32>
  return
}

// -----

func.func @grid_sample_2(%x: tensor<1x3x4x4xf32>, %grid: tensor<1x5x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op grid must have the rank of the operand f32[1, 3, 4, 4], got f32[1, 5, 2]}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<1x3x4x4xf32>, tensor<1x5x2xf32>) -> tensor<1x3x4x4xf32>
  return
}

// -----

func.func @grid_sample_3(%x: tensor<1x3x4x4xf32>, %grid: tensor<2x5x5x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op the batch dims of f32[1, 3, 4, 4] and grid f32[2, 5, 5, 2] must agree, got 1 and 2}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<1x3x4x4xf32>, tensor<2x5x5x2xf32>) -> tensor<1x3x4x4xf32>
  return
}

// -----

func.func @grid_sample_4(%x: tensor<1x3x4x4xf32>, %grid: tensor<1x5x5x3xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op the last dim of grid f32[1, 5, 5, 3] and the number of spatial dims of f32[1, 3, 4, 4] must agree, got 3 and 2}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<1x3x4x4xf32>, tensor<1x5x5x3xf32>) -> tensor<1x3x4x4xf32>
  return
}

// -----

func.func @grid_sample_5(%x: tensor<3x4xf32>, %grid: tensor<1x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op operand must have a batch dim, a channel dim and at least one spatial dim, got f32[3, 4]}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<3x4xf32>, tensor<1x2xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @grid_sample_6(%x: tensor<1x3x4x4xf32>, %grid: tensor<1x5x5x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op attribute 'mode' must be one of 'nearest', 'linear', 'cubic', got 'bilinear'}}
  %0 = "relax.grid_sample"(%x, %grid) {mode = "bilinear"} : (tensor<1x3x4x4xf32>, tensor<1x5x5x2xf32>) -> tensor<1x3x4x4xf32>
  return
}

// -----

func.func @grid_sample_7(%x: tensor<1x3x4x4xf32>, %grid: tensor<1x5x5x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op attribute 'padding_mode' must be one of 'zeros', 'border', 'reflection', got 'wrap'}}
  %0 = "relax.grid_sample"(%x, %grid) {padding_mode = "wrap"} : (tensor<1x3x4x4xf32>, tensor<1x5x5x2xf32>) -> tensor<1x3x4x4xf32>
  return
}

// -----

func.func @grid_sample_8(%x: tensor<1x3x4x4xf32>, %grid: tensor<1x5x5x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op result is declared f32[1, 3, 4, 4], but its operands and attributes make it f32[1, 3, 5, 5]}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<1x3x4x4xf32>, tensor<1x5x5x2xf32>) -> tensor<1x3x4x4xf32>
  return
}

// -----

func.func @grid_sample_9(%x: tensor<1x3x4xi32>, %grid: tensor<1x5x1xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op operand must be floating point, got i32}}
  %0 = "relax.grid_sample"(%x, %grid) : (tensor<1x3x4xi32>, tensor<1x5x1xf32>) -> tensor<1x3x4xi32>
  return
}

// -----

func.func @grid_sample_10(%x0: tensor<1x2x4x0xf32>, %x1: tensor<1x3x3x2xf32>) {
  // expected-error@+1 {{'relax.grid_sample' op axis 3 of the operand f32[1, 2, 4, 0], which is sampled, is empty}}
  %0 = "relax.grid_sample"(%x0, %x1) : (tensor<1x2x4x0xf32>, tensor<1x3x3x2xf32>) -> tensor<1x2x3x3xf32>
  return
}

// -----

func.func @resize_12(%x0: tensor<0x2xf32>) {
  // expected-error@+1 {{'relax.resize' op axis 0 of the operand f32[0, 2], which is resized to 2, is empty}}
  %0 = "relax.resize"(%x0) {shape = [2, 4]} : (tensor<0x2xf32>) -> tensor<0x4xf32>
  return
}
