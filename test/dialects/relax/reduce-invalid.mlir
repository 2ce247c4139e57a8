// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @reduce_sum_1(%x: tensor<2x3xi1>) {
  // expected-error@+1 {{'relax.reduce_sum' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.reduce_sum"(%x) : (tensor<2x3xi1>) -> tensor<2x3xi1>
  return
}

// -----

func.func @reduce_any(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reduce_any' op operand must be bool, got f32}}
  %0 = "relax.reduce_any"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reduce_l2(%x: tensor<2x3xi32>) {
  // expected-error@+1 {{'relax.reduce_l2' op operand must be floating point, got i32}}
  %0 = "relax.reduce_l2"(%x) : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return
}

// -----

func.func @reduce_mean(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reduce_mean' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.reduce_mean"(%x) {axes = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reduce_max(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reduce_max' op axes [1, -1] name one axis twice}}
  %0 = "relax.reduce_max"(%x) {axes = array<i64: 1, -1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reduce_sum_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reduce_sum' op attribute 'axes' must be integers such as array<i64: 1, 1>, got 1 : i64}}
  %0 = "relax.reduce_sum"(%x) {axes = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @reduce_sum_3(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reduce_sum' op result is declared f32[2, 1], but its operands and attributes make it f32[2]}}
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @reduce_sum_4(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.reduce_sum' op result is declared f32[2], but its operands and attributes make it f32[2, 1]}}
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>, keepdims = true} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @argmax_1(%x: tensor<2xi1>) {
  // expected-error@+1 {{'relax.argmax' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.argmax"(%x) : (tensor<2xi1>) -> tensor<1xi64>
  return
}

// -----

func.func @argmax_2(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.argmax' op axis 0 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.argmax"(%x) : (tensor<f32>) -> tensor<i64>
  return
}

// -----

func.func @argmin_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.argmin' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.argmin"(%x) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xi64>
  return
}

// -----

func.func @argmin_2(%x: tensor<2x0xf32>) {
  // expected-error@+1 {{'relax.argmin' op axis 1 of f32[2, 0] is empty: it has no minimum or maximum}}
  %0 = "relax.argmin"(%x) {axis = 1 : i64} : (tensor<2x0xf32>) -> tensor<2x1xi64>
  return
}

// -----

func.func @argmax_3(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.argmax' op result is declared i32[1, 3], but its operands and attributes make it i64[1, 3]}}
  %0 = "relax.argmax"(%x) : (tensor<2x3xf32>) -> tensor<1x3xi32>
  return
}

// -----

func.func @cumsum_1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.cumsum' op needs the attribute 'axis', an integer}}
  %0 = "relax.cumsum"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @cumsum_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.cumsum' op axis -3 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.cumsum"(%x) {axis = -3 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @cumsum_3(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.cumsum' op axis 0 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.cumsum"(%x) {axis = 0 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @cumprod(%x: tensor<2xi1>) {
  // expected-error@+1 {{'relax.cumprod' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.cumprod"(%x) {axis = 0 : i64} : (tensor<2xi1>) -> tensor<2xi1>
  return
}
