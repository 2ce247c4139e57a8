// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @conv_1(%x: tensor<1x3xf32>, %weight: tensor<4x3xf32>) {
  // expected-error@+1 {{'relax.conv' op operand must have a batch dim, a channel dim and at least one spatial dim, got f32[1, 3]}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3xf32>, tensor<4x3xf32>) -> tensor<1x3xf32>
  return
}

// -----

func.func @conv_2(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op weight must have the rank of the operand, 4, got f32[4, 3, 3]}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x8x8xf32>, tensor<4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_3(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x2x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op the channels of f32[1, 3, 8, 8] and those of f32[4, 2, 3, 3] must agree, got 3 and 2}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_4(%x: tensor<1x?x8x8xf32, #relax.dims<[1, "c", 8, 8]>>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op the channels of f32[1, c, 8, 8] and those of f32[4, 3, 3, 3] must agree, got c and 3 (a dim that is always 3 must be declared 3)}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x?x8x8xf32, #relax.dims<[1, "c", 8, 8]>>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_5(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op groups must be at least 1, got 0}}
  %0 = "relax.conv"(%x, %weight) {groups = 0 : i64} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_6(%x: tensor<1x9x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op the 4 out channels must divide into 3 groups}}
  %0 = "relax.conv"(%x, %weight) {groups = 3 : i64} : (tensor<1x9x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_7(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.conv' op bias must be a vector of one number per out channel, 4, got f32[3]}}
  %0 = "relax.conv"(%x, %weight, %bias) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_8(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>, %bias: tensor<4xf16>) {
  // expected-error@+1 {{'relax.conv' op bias must have the element type of the result, f32, got f16}}
  %0 = "relax.conv"(%x, %weight, %bias) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf16>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_9(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>, %bias: tensor<4x1xf32>) {
  // expected-error@+1 {{'relax.conv' op bias must be a vector of one number per out channel, 4, got f32[4, 1]}}
  %0 = "relax.conv"(%x, %weight, %bias) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<4x1xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_10(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op strides must be one number per spatial dim, 2 of them, got [1]}}
  %0 = "relax.conv"(%x, %weight) {strides = array<i64: 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_11(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op strides must be at least 1, got [0, 1]}}
  %0 = "relax.conv"(%x, %weight) {strides = array<i64: 0, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_12(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op dilations must be at least 1, got [1, 0]}}
  %0 = "relax.conv"(%x, %weight) {dilations = array<i64: 1, 0>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_13(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op padding must be 4 numbers, all begins then all ends, got [1, 1]}}
  %0 = "relax.conv"(%x, %weight) {padding = array<i64: 1, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_14(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op padding must not be negative, got [0, 0, -1, 0]}}
  %0 = "relax.conv"(%x, %weight) {padding = array<i64: 0, 0, -1, 0>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_15(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op attribute 'strides' must be integers such as array<i64: 1, 1>, got [1, 1]}}
  %0 = "relax.conv"(%x, %weight) {strides = [1, 1]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_16(%x: tensor<1x3x2x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op a window of 3 does not fit a dim of 2 padded to 2}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x2x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_17(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op a window of 9 (window 3, dilation 4) does not fit a dim of 8 padded to 8}}
  %0 = "relax.conv"(%x, %weight) {dilations = array<i64: 4, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_18(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op attribute 'data_layout' must be one of 'NC*', 'N*C', got 'NHWC'}}
  %0 = "relax.conv"(%x, %weight) {data_layout = "NHWC"} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_19(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op attribute 'kernel_layout' must be one of 'OI*', '*IO', 'O*I', got 'HWIO'}}
  %0 = "relax.conv"(%x, %weight) {kernel_layout = "HWIO"} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_20(%x: tensor<1x3x8x8xi8>, %weight: tensor<4x3x3x3xui8>) {
  // expected-error@+1 {{'relax.conv' op operand and weight must have one element type, got i8, u8}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x8x8xi8>, tensor<4x3x3x3xui8>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_21(%x: tensor<1x3x8x8xi8>, %weight: tensor<4x3x3x3xi8>) {
  // expected-error@+1 {{'relax.conv' op out_dtype f32 cannot hold sums of products of i8}}
  %0 = "relax.conv"(%x, %weight) {out_dtype = f32} : (tensor<1x3x8x8xi8>, tensor<4x3x3x3xi8>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_22(%x: tensor<1x3x8x8xf32>, %weight: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{'relax.conv' op result is declared f32[1, 4, 8, 8], but its operands and attributes make it f32[1, 4, 6, 6]}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  return
}

// -----

func.func @conv_23(%x: tensor<1x3x8x8xi1>, %weight: tensor<4x3x3x3xi1>) {
  // expected-error@+1 {{'relax.conv' op operand and weight must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.conv"(%x, %weight) : (tensor<1x3x8x8xi1>, tensor<4x3x3x3xi1>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_24(%x: tensor<1x3x8x8xf32>) {
  // expected-error@+1 {{'relax.conv' op needs 2 to 3 operands, got 1}}
  %0 = "relax.conv"(%x) : (tensor<1x3x8x8xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_transpose_1(%x: tensor<1x3xf32>, %weight: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op operand must have a batch dim, a channel dim and at least one spatial dim, got f32[1, 3]}}
  %0 = "relax.conv_transpose"(%x, %weight) : (tensor<1x3xf32>, tensor<3x4xf32>) -> tensor<1x3xf32>
  return
}

// -----

func.func @conv_transpose_2(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3x3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op weight must have the rank of the operand, 3, got f32[3, 4, 3, 3]}}
  %0 = "relax.conv_transpose"(%x, %weight) : (tensor<1x3x8xf32>, tensor<3x4x3x3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_3(%x: tensor<1x3x8xf32>, %weight: tensor<4x3x3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op the channels of f32[1, 3, 8] and the first dim of f32[4, 3, 3] must agree, got 3 and 4}}
  %0 = "relax.conv_transpose"(%x, %weight) : (tensor<1x3x8xf32>, tensor<4x3x3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_4(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op the 3 channels of the operand must divide into 2 groups}}
  %0 = "relax.conv_transpose"(%x, %weight) {groups = 2 : i64} : (tensor<1x3x8xf32>, tensor<3x4x3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_5(%x: tensor<1x3x8xi32>, %weight: tensor<3x4x3xi32>) {
  // expected-error@+1 {{'relax.conv_transpose' op operands must be floating point, got i32}}
  %0 = "relax.conv_transpose"(%x, %weight) : (tensor<1x3x8xi32>, tensor<3x4x3xi32>) -> tensor<1x3x8xi32>
  return
}

// -----

func.func @conv_transpose_6(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3xf16>) {
  // expected-error@+1 {{'relax.conv_transpose' op operands must have one element type, got f32, f16}}
  %0 = "relax.conv_transpose"(%x, %weight) : (tensor<1x3x8xf32>, tensor<3x4x3xf16>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_7(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op output_padding must be at least 0, got [-1]}}
  %0 = "relax.conv_transpose"(%x, %weight) {output_padding = array<i64: -1>} : (tensor<1x3x8xf32>, tensor<3x4x3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_8(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op padding [5, 5] crops spatial dim 0 of the result to 0}}
  %0 = "relax.conv_transpose"(%x, %weight) {padding = array<i64: 5, 5>} : (tensor<1x3x8xf32>, tensor<3x4x3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_9(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op bias must be a vector of one number per out channel, 4, got f32[3]}}
  %0 = "relax.conv_transpose"(%x, %weight, %bias) : (tensor<1x3x8xf32>, tensor<3x4x3xf32>, tensor<3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_transpose_10(%x: tensor<1x3x8xf32>, %weight: tensor<3x4x3xf32>) {
  // expected-error@+1 {{'relax.conv_transpose' op padding must be 2 numbers, all begins then all ends, got [1]}}
  %0 = "relax.conv_transpose"(%x, %weight) {padding = array<i64: 1>} : (tensor<1x3x8xf32>, tensor<3x4x3xf32>) -> tensor<1x3x8xf32>
  return
}

// -----

func.func @conv_weight_gradient_1(%x: tensor<1x3x8xf32>, %gradient: tensor<1x4x6xf16>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op operands must have one element type, got f32, f16}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>} : (tensor<1x3x8xf32>, tensor<1x4x6xf16>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_2(%x: tensor<1x3x8xi32>, %gradient: tensor<1x4x6xi32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op operands must be floating point, got i32}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>} : (tensor<1x3x8xi32>, tensor<1x4x6xi32>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_3(%x: tensor<1x3x8xf32>, %gradient: tensor<1x4x6x6xf32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op the gradient must have the rank of the operand, 3, got f32[1, 4, 6, 6]}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>} : (tensor<1x3x8xf32>, tensor<1x4x6x6xf32>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_4(%x: tensor<1x3x8xf32>, %gradient: tensor<1x4x6xf32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op window must be one number per spatial dim, 1 of them, got [3, 3]}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3, 3>} : (tensor<1x3x8xf32>, tensor<1x4x6xf32>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_5(%x: tensor<1x3x8xf32>, %gradient: tensor<2x4x6xf32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op the batches of f32[1, 3, 8] and f32[2, 4, 6] must agree, got 1 and 2}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>} : (tensor<1x3x8xf32>, tensor<2x4x6xf32>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_6(%x: tensor<1x3x8xf32>, %gradient: tensor<1x4x6xf32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op the 3 channels of the operand must divide into 2 groups}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>, groups = 2 : i64} : (tensor<1x3x8xf32>, tensor<1x4x6xf32>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_7(%x: tensor<1x4x8xf32>, %gradient: tensor<1x3x6xf32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op the 3 out channels must divide into 2 groups}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>, groups = 2 : i64} : (tensor<1x4x8xf32>, tensor<1x3x6xf32>) -> tensor<4x3x3xf32>
  return
}

// -----

func.func @conv_weight_gradient_8(%x: tensor<1x3x8xf32>, %gradient: tensor<1x4x7xf32>) {
  // expected-error@+1 {{'relax.conv_weight_gradient' op the windows of f32[1, 3, 8] and spatial dim 0 of f32[1, 4, 7] must agree, got 6 and 7}}
  %0 = "relax.conv_weight_gradient"(%x, %gradient) {window = array<i64: 3>} : (tensor<1x3x8xf32>, tensor<1x4x7xf32>) -> tensor<4x3x3xf32>
  return
}
