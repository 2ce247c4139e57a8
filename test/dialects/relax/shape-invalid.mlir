// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @reshape_1(%x: tensor<2x6xf32>) {
  // expected-error@+1 {{'relax.reshape' op f32[2, 6] has 12 elements, but shape [5] has 5}}
  %0 = "relax.reshape"(%x) {shape = [5]} : (tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @reshape_2(%x: tensor<?x6xf32, #relax.dims<["b", 6]>>) {
  // expected-error@+1 {{'relax.reshape' op f32[b, 6] has 6*b elements, but shape [b, 5] has 5*b}}
  %0 = "relax.reshape"(%x) {shape = ["b", 5]} : (tensor<?x6xf32, #relax.dims<["b", 6]>>) -> tensor<?x6xf32, #relax.dims<["b", 6]>>
  return
}

// -----

func.func @reshape_3(%x: tensor<?xf32, #relax.dims<["n + 1"]>>) {
  // expected-error@+1 {{'relax.reshape' op f32[n + 1] has n + 1 elements, but shape [n] has n}}
  %0 = "relax.reshape"(%x) {shape = ["n"]} : (tensor<?xf32, #relax.dims<["n + 1"]>>) -> tensor<?xf32, #relax.dims<["n + 1"]>>
  return
}

// -----

func.func @reshape_4(%x: tensor<2x6xf32>) {
  // expected-error@+1 {{'relax.reshape' op attribute 'shape' must be dims such as [2, "batch"], got [-1]}}
  %0 = "relax.reshape"(%x) {shape = [-1]} : (tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @reshape_5(%x: tensor<2x6xf32>) {
  // expected-error@+1 {{'relax.reshape' op attribute 'shape' must be dims such as [2, "batch"], got ["b+"]}}
  %0 = "relax.reshape"(%x) {shape = ["b+"]} : (tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @reshape_6(%x: tensor<2x6xf32>) {
  // expected-error@+1 {{'relax.reshape' op attribute 'shape' must be dims such as [2, "batch"], got array<i64: 12>}}
  %0 = "relax.reshape"(%x) {shape = array<i64: 12>} : (tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @reshape_7(%x: tensor<2x6xf32>) {
  // expected-error@+1 {{'relax.reshape' op needs the attribute 'shape', dims such as [2, "batch"]}}
  %0 = "relax.reshape"(%x) : (tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @reshape_8(%x: tensor<2x6xf32>) {
  // expected-error@+1 {{'relax.reshape' op result is declared f32[2, 6], but its operands and attributes make it f32[3, 4]}}
  %0 = "relax.reshape"(%x) {shape = [3, 4]} : (tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @permute_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.permute' op axes must name each of the 2 axes of f32[2, 3] once, got [0]}}
  %0 = "relax.permute"(%x) {axes = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @permute_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.permute' op axes must name each of the 2 axes of f32[2, 3] once, got [0, 0]}}
  %0 = "relax.permute"(%x) {axes = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @permute_3(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.permute' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.permute"(%x) {axes = array<i64: 0, 2>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @permute_4(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.permute' op result is declared f32[2, 3], but its operands and attributes make it f32[3, 2]}}
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @expand_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.expand' op operand of shape [2, 3] does not broadcast to [2, 4]}}
  %0 = "relax.expand"(%x) {shape = [2, 4]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @expand_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.expand' op operand of shape [2, 3] does not broadcast to [3]}}
  %0 = "relax.expand"(%x) {shape = [3]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @expand_3(%x: tensor<2x1xf32>) {
  // expected-error@+1 {{'relax.expand' op result is declared f32[2, 1], but its operands and attributes make it f32[2, 4]}}
  %0 = "relax.expand"(%x) {shape = [2, 4]} : (tensor<2x1xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @expand_dims_1(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.expand_dims' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.expand_dims"(%x) {axes = array<i64: 2>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @expand_dims_2(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.expand_dims' op axes [0, 0] name one axis twice}}
  %0 = "relax.expand_dims"(%x) {axes = array<i64: 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @expand_dims_3(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.expand_dims' op result is declared f32[2], but its operands and attributes make it f32[1, 2]}}
  %0 = "relax.expand_dims"(%x) {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @squeeze_1(%x: tensor<2x1xf32>) {
  // expected-error@+1 {{'relax.squeeze' op axis 0 of f32[2, 1] is 2: only a dim of 1 can be squeezed}}
  %0 = "relax.squeeze"(%x) {axes = array<i64: 0>} : (tensor<2x1xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @squeeze_2(%x: tensor<2x1xf32>) {
  // expected-error@+1 {{'relax.squeeze' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.squeeze"(%x) {axes = array<i64: 2>} : (tensor<2x1xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @squeeze_3(%x: tensor<2x1xf32>) {
  // expected-error@+1 {{'relax.squeeze' op result is declared f32[2, 1], but its operands and attributes make it f32[2]}}
  %0 = "relax.squeeze"(%x) {axes = array<i64: 1>} : (tensor<2x1xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @tile_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.tile' op repeats must be one non-negative number per axis of f32[2, 3], got [2]}}
  %0 = "relax.tile"(%x) {repeats = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @tile_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.tile' op repeats must be one non-negative number per axis of f32[2, 3], got [2, -1]}}
  %0 = "relax.tile"(%x) {repeats = array<i64: 2, -1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @tile_3(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.tile' op result is declared f32[2, 3], but its operands and attributes make it f32[4, 3]}}
  %0 = "relax.tile"(%x) {repeats = array<i64: 2, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reverse_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reverse' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.reverse"(%x) {axes = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reverse_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reverse' op axes [1, -1] name one axis twice}}
  %0 = "relax.reverse"(%x) {axes = array<i64: 1, -1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reverse_3(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reverse' op needs the attribute 'axes', integers such as array<i64: 1, 1>}}
  %0 = "relax.reverse"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @depth_to_space_1(%x: tensor<2x12xf32>) {
  // expected-error@+1 {{'relax.depth_to_space' op operand [batch, channels, height, width] must have rank 4, got f32[2, 12]}}
  %0 = "relax.depth_to_space"(%x) {block = 2 : i64} : (tensor<2x12xf32>) -> tensor<2x12xf32>
  return
}

// -----

func.func @depth_to_space_2(%x: tensor<1x3x2x2xf32>) {
  // expected-error@+1 {{'relax.depth_to_space' op the 3 channels of f32[1, 3, 2, 2] must be a multiple of 2^2}}
  %0 = "relax.depth_to_space"(%x) {block = 2 : i64} : (tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32>
  return
}

// -----

func.func @depth_to_space_3(%x: tensor<1x4x2x2xf32>) {
  // expected-error@+1 {{'relax.depth_to_space' op block must be at least 1, got 0}}
  %0 = "relax.depth_to_space"(%x) {block = 0 : i64} : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32>
  return
}

// -----

func.func @depth_to_space_4(%x: tensor<1x4x2x2xf32>) {
  // expected-error@+1 {{'relax.depth_to_space' op attribute 'mode' must be one of 'DCR', 'CRD', got 'RCD'}}
  %0 = "relax.depth_to_space"(%x) {block = 2 : i64, mode = "RCD"} : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32>
  return
}

// -----

func.func @space_to_depth_1(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'relax.space_to_depth' op operand [batch, channels, height, width] must have rank 4, got f32[4, 4]}}
  %0 = "relax.space_to_depth"(%x) {block = 2 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @space_to_depth_2(%x: tensor<1x1x4x5xf32>) {
  // expected-error@+1 {{'relax.space_to_depth' op height and width of f32[1, 1, 4, 5] must be multiples of 2}}
  %0 = "relax.space_to_depth"(%x) {block = 2 : i64} : (tensor<1x1x4x5xf32>) -> tensor<1x1x4x5xf32>
  return
}

// -----

func.func @space_to_depth_3(%x: tensor<1x1x4x4xf32>) {
  // expected-error@+1 {{'relax.space_to_depth' op block must be at least 1, got -1}}
  %0 = "relax.space_to_depth"(%x) {block = -1 : i64} : (tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  return
}

// -----

func.func @shape_of_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.shape_of' op result is declared i64[3], but its operands and attributes make it i64[2]}}
  %0 = "relax.shape_of"(%x) : (tensor<2x3xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @shape_of_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.shape_of' op result is declared i32[2], but its operands and attributes make it i64[2]}}
  %0 = "relax.shape_of"(%x) : (tensor<2x3xf32>) -> tensor<2xi32>
  return
}

// -----

// expected-error @below {{bounds must have an entry for each of 2 dims, got 1}}
"relax.require_dims"() {dims = ["n", "m"], bounds = [3], what = "sizes"} : () -> ()

// -----

// expected-error @below {{dims must be known, got ['?']}}
"relax.require_dims"() {dims = ["?"], what = "sizes"} : () -> ()

// -----

func.func @expand_4(%x: tensor<?xf32, #relax.dims<["n + 5"]>>) {
  // expected-error@+1 {{'relax.expand' op a tensor of shape [n + 5] does not broadcast to [3]}}
  %0 = "relax.expand"(%x) {shape = [3]} : (tensor<?xf32, #relax.dims<["n + 5"]>>) -> tensor<3xf32>
  return
}
