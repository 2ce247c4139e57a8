// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @max_pool_1(%x: tensor<6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op operand must have a batch dim, a channel dim and at least one spatial dim, got f32[6, 6]}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2>} : (tensor<6x6xf32>) -> tensor<6x6xf32>
  return
}

// -----

func.func @max_pool_2(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op needs the attribute 'kernel', integers such as array<i64: 1, 1>}}
  %0 = "relax.max_pool"(%x) : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_3(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op kernel must be one number per spatial dim of f32[1, 2, 6, 6], 2 of them, got [2]}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_4(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op kernel must be at least 1, got [0, 2]}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 0, 2>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_5(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op strides must be at least 1, got [2, 0]}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 0>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_6(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op a window of 7 does not fit a dim of 6 padded to 6}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 7, 2>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_7(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op padding (2, 0) of spatial dim 0 must be smaller than the window of 2}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2, 2>, padding = array<i64: 2, 0, 0, 0>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_8(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op padding must be 4 numbers, all begins then all ends, got [1, 1]}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2, 2>, padding = array<i64: 1, 1>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_9(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op dilations must be one number per spatial dim, 2 of them, got [1]}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2, 2>, dilations = array<i64: 1>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @max_pool_10(%x: tensor<1x2x6xi1>) {
  // expected-error@+1 {{'relax.max_pool' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2>} : (tensor<1x2x6xi1>) -> tensor<1x2x6xi1>
  return
}

// -----

func.func @max_pool_11(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool' op attribute 'ceil_mode' must be true or false, got 1 : i64}}
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2, 2>, ceil_mode = 1 : i64} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @avg_pool_1(%x: tensor<1x2x6xi32>) {
  // expected-error@+1 {{'relax.avg_pool' op operand must be floating point, got i32}}
  %0 = "relax.avg_pool"(%x) {kernel = array<i64: 2>} : (tensor<1x2x6xi32>) -> tensor<1x2x6xi32>
  return
}

// -----

func.func @avg_pool_2(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.avg_pool' op padding must not be negative, got [0, 0, 0, -1]}}
  %0 = "relax.avg_pool"(%x) {kernel = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, -1>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @avg_pool_3(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.avg_pool' op attribute 'data_layout' must be one of 'NC*', 'N*C', got 'NCHW'}}
  %0 = "relax.avg_pool"(%x) {kernel = array<i64: 2, 2>, data_layout = "NCHW"} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @avg_pool_4(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.avg_pool' op result is declared f32[1, 2, 6, 6], but its operands and attributes make it f32[1, 2, 5, 5]}}
  %0 = "relax.avg_pool"(%x) {kernel = array<i64: 2, 2>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @lp_pool_1(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.lp_pool' op p must be at least 1, got 0}}
  %0 = "relax.lp_pool"(%x) {kernel = array<i64: 2, 2>, p = 0 : i64} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  return
}

// -----

func.func @lp_pool_2(%x: tensor<1x2x6xi32>) {
  // expected-error@+1 {{'relax.lp_pool' op operand must be floating point, got i32}}
  %0 = "relax.lp_pool"(%x) {kernel = array<i64: 2>} : (tensor<1x2x6xi32>) -> tensor<1x2x6xi32>
  return
}

// -----

func.func @max_pool_with_indices_1(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool_with_indices' op attribute 'storage_order' must be one of 0, 1, got 2}}
  %0:2 = "relax.max_pool_with_indices"(%x) {kernel = array<i64: 2, 2>, storage_order = 2 : i64} : (tensor<1x2x6x6xf32>) -> (tensor<1x2x5x5xf32>, tensor<1x2x5x5xi64>)
  return
}

// -----

func.func @max_pool_with_indices_2(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool_with_indices' op result #1 is declared i32[1, 2, 5, 5], but its operands and attributes make it i64[1, 2, 5, 5]}}
  %0:2 = "relax.max_pool_with_indices"(%x) {kernel = array<i64: 2, 2>} : (tensor<1x2x6x6xf32>) -> (tensor<1x2x5x5xf32>, tensor<1x2x5x5xi32>)
  return
}

// -----

func.func @max_pool_with_indices_3(%x: tensor<1x2x6x6xf32>) {
  // expected-error@+1 {{'relax.max_pool_with_indices' op has no attribute 'count_include_pad'; it has: kernel, strides, padding, dilations, ceil_mode, storage_order, data_layout}}
  %0:2 = "relax.max_pool_with_indices"(%x) {kernel = array<i64: 2, 2>, count_include_pad = true} : (tensor<1x2x6x6xf32>) -> (tensor<1x2x5x5xf32>, tensor<1x2x5x5xi64>)
  return
}

// -----

func.func @max_pool_with_indices_4(%x0: tensor<2x8xi1>) {
  // expected-error@+1 {{'relax.max_pool_with_indices' op operand must be floating point, integer or unsigned integer, got bool}}
  %0:2 = "relax.max_pool_with_indices"(%x0) {kernel = array<i64: 3>, padding = array<i64: 1, 1>} : (tensor<2x8xi1>) -> (tensor<1x2x8xf32>, tensor<1x2x8xi64>)
  return
}
