// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @layer_norm_1(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op scale of shape [3] does not broadcast to [8]}}
  %0 = "relax.layer_norm"(%x, %scale) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x3x8xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @layer_norm_2(%x: tensor<2x3x8xf32>, %scale: tensor<8xf16>) {
  // expected-error@+1 {{'relax.layer_norm' op operand and scale must have one element type, got f32, f16}}
  %0 = "relax.layer_norm"(%x, %scale) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x3x8xf32>, tensor<8xf16>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @layer_norm_3(%x: tensor<2x3x8xf32>, %scale: tensor<8xf32>, %bias: tensor<2x8xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op bias of shape [2, 8] does not broadcast to [8]}}
  %0 = "relax.layer_norm"(%x, %scale, %bias) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<2x3x8xf32>, tensor<8xf32>, tensor<2x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @layer_norm_4(%x: tensor<2x3x8xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op axis 3 is outside a tensor of rank 3: expected -3 to 2}}
  %0 = "relax.layer_norm"(%x) {axis = 3 : i64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @layer_norm_5(%x: tensor<2x3xi32>) {
  // expected-error@+1 {{'relax.layer_norm' op operand must be floating point, got i32}}
  %0 = "relax.layer_norm"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return
}

// -----

func.func @layer_norm_6(%x: tensor<2x3x8xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op has no attribute 'eps'; did you mean 'epsilon'?}}
  %0 = "relax.layer_norm"(%x) {eps = 0.1 : f64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @layer_norm_7(%x: tensor<2x3x8xf32>, %scale: tensor<3x8xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op scale of shape [3, 8] does not broadcast to [8]}}
  %0 = "relax.layer_norm"(%x, %scale) {axis = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x3x8xf32>, tensor<3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @layer_norm_8(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.layer_norm' op axis -1 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.layer_norm"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @rms_norm_1(%x: tensor<2x3x8xf32>, %scale: tensor<4xf32>) {
  // expected-error@+1 {{'relax.rms_norm' op scale of shape [4] does not broadcast to [8]}}
  %0 = "relax.rms_norm"(%x, %scale) : (tensor<2x3x8xf32>, tensor<4xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @rms_norm_2(%x: tensor<2xi32>) {
  // expected-error@+1 {{'relax.rms_norm' op operand must be floating point, got i32}}
  %0 = "relax.rms_norm"(%x) : (tensor<2xi32>) -> tensor<2xi32>
  return
}

// -----

func.func @batch_norm_1(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>, %mean: tensor<3xf32>, %variance: tensor<8xf32>) {
  // expected-error@+1 {{'relax.batch_norm' op variance must be a vector of one number per channel, 3, got f32[8]}}
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) : (tensor<2x3x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @batch_norm_2(%x: tensor<2x3x8xf32>, %scale: tensor<3x1xf32>, %bias: tensor<3xf32>, %mean: tensor<3xf32>, %variance: tensor<3xf32>) {
  // expected-error@+1 {{'relax.batch_norm' op scale must be a vector of one number per channel, 3, got f32[3, 1]}}
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) : (tensor<2x3x8xf32>, tensor<3x1xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @batch_norm_3(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>, %mean: tensor<3xf64>, %variance: tensor<3xf32>) {
  // expected-error@+1 {{'relax.batch_norm' op operand and mean must have one element type, got f32, f64}}
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) : (tensor<2x3x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf64>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @batch_norm_4(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>, %mean: tensor<3xf32>, %variance: tensor<3xf32>) {
  // expected-error@+1 {{'relax.batch_norm' op axis 4 is outside a tensor of rank 3: expected -3 to 2}}
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) {axis = 4 : i64} : (tensor<2x3x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @batch_norm_5(%x: tensor<2x3xi32>, %scale: tensor<3xi32>, %bias: tensor<3xi32>, %mean: tensor<3xi32>, %variance: tensor<3xi32>) {
  // expected-error@+1 {{'relax.batch_norm' op operand must be floating point, got i32}}
  %0 = "relax.batch_norm"(%x, %scale, %bias, %mean, %variance) : (tensor<2x3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return
}

// -----

func.func @instance_norm_1(%x: tensor<2x3xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.instance_norm' op operand must have a batch dim, a channel dim and at least one spatial dim, got f32[2, 3]}}
  %0 = "relax.instance_norm"(%x, %scale, %bias) : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @instance_norm_2(%x: tensor<2x3x8xf32>, %scale: tensor<8xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.instance_norm' op scale must be a vector of one number per channel, 3, got f32[8]}}
  %0 = "relax.instance_norm"(%x, %scale, %bias) : (tensor<2x3x8xf32>, tensor<8xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @group_norm_1(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.group_norm' op needs the attribute 'groups', an integer}}
  %0 = "relax.group_norm"(%x, %scale, %bias) : (tensor<2x3x8xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @group_norm_2(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.group_norm' op the 3 channels must divide into 2 groups}}
  %0 = "relax.group_norm"(%x, %scale, %bias) {groups = 2 : i64} : (tensor<2x3x8xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @group_norm_3(%x: tensor<2x3x8xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.group_norm' op groups must be at least 1, got 0}}
  %0 = "relax.group_norm"(%x, %scale, %bias) {groups = 0 : i64} : (tensor<2x3x8xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @group_norm_4(%x: tensor<2xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+1 {{'relax.group_norm' op operand must have a batch dim and a channel dim, got f32[2]}}
  %0 = "relax.group_norm"(%x, %scale, %bias) {groups = 1 : i64} : (tensor<2xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @lrn_1(%x: tensor<2x3x8xf32>) {
  // expected-error@+1 {{'relax.lrn' op size must be at least 1, got 0}}
  %0 = "relax.lrn"(%x) {size = 0 : i64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @lrn_2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.lrn' op operand must have a batch dim and a channel dim, got f32[4]}}
  %0 = "relax.lrn"(%x) {size = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @lrn_3(%x: tensor<2x3x8xf32>) {
  // expected-error@+1 {{'relax.lrn' op needs the attribute 'size', an integer}}
  %0 = "relax.lrn"(%x) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @lrn_4(%x: tensor<2x3xi32>) {
  // expected-error@+1 {{'relax.lrn' op operand must be floating point, got i32}}
  %0 = "relax.lrn"(%x) {size = 1 : i64} : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return
}

// -----

func.func @lp_normalize_1(%x: tensor<2x3x8xf32>) {
  // expected-error@+1 {{'relax.lp_normalize' op attribute 'p' must be one of 1, 2, got 3}}
  %0 = "relax.lp_normalize"(%x) {p = 3 : i64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @lp_normalize_2(%x: tensor<2x3x8xf32>) {
  // expected-error@+1 {{'relax.lp_normalize' op axis 3 is outside a tensor of rank 3: expected -3 to 2}}
  %0 = "relax.lp_normalize"(%x) {axis = 3 : i64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @lp_normalize_3(%x: tensor<2xi32>) {
  // expected-error@+1 {{'relax.lp_normalize' op operand must be floating point, got i32}}
  %0 = "relax.lp_normalize"(%x) : (tensor<2xi32>) -> tensor<2xi32>
  return
}

// -----

func.func @group_norm_5(%x0: tensor<1x6x4x4xf32>, %x1: tensor<f32>, %x2: tensor<f32>) {
  // expected-error@+1 {{'relax.group_norm' op scale must be a vector of one number per channel, 6, got f32[]}}
  %0 = "relax.group_norm"(%x0, %x1, %x2) {groups = 2} : (tensor<1x6x4x4xf32>, tensor<f32>, tensor<f32>) -> tensor<1x6x4x4xf32>
  return
}
