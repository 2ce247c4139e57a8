// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @relu(%x: tensor<2xi1>) {
  // expected-error@+1 {{'relax.relu' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.relu"(%x) : (tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @sigmoid(%x: tensor<2xi32>) {
  // expected-error@+1 {{'relax.sigmoid' op operand must be floating point, got i32}}
  %0 = "relax.sigmoid"(%x) : (tensor<2xi32>) -> tensor<2xi32>
  return
}

// -----

func.func @leaky_relu_1(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.leaky_relu' op attribute 'alpha' must be a number such as 0.5 : f64, got 1 : i64}}
  %0 = "relax.leaky_relu"(%x) {alpha = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @leaky_relu_2(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.leaky_relu' op has no attribute 'alhpa'; did you mean 'alpha'?}}
  %0 = "relax.leaky_relu"(%x) {alhpa = 0.1 : f64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @gelu_1(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.gelu' op attribute 'approximate' must be one of 'none', 'tanh', got 'erf'}}
  %0 = "relax.gelu"(%x) {approximate = "erf"} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @gelu_2(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.gelu' op attribute 'approximate' must be a string, got 1 : i64}}
  %0 = "relax.gelu"(%x) {approximate = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @clip_1(%x: tensor<2xi1>) {
  // expected-error@+1 {{'relax.clip' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.clip"(%x) : (tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @clip_2(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.clip' op attribute 'max' must be a number such as 0.5 : f64, got "6"}}
  %0 = "relax.clip"(%x) {max = "6"} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @prelu_1(%x: tensor<2x3xf32>, %slope: tensor<2xf32>) {
  // expected-error@+1 {{'relax.prelu' op slope of shape [2] does not broadcast to [2, 3]}}
  %0 = "relax.prelu"(%x, %slope) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @prelu_2(%x: tensor<2x3xf32>, %slope: tensor<4x2x3xf32>) {
  // expected-error@+1 {{'relax.prelu' op slope of shape [4, 2, 3] does not broadcast to [2, 3]}}
  %0 = "relax.prelu"(%x, %slope) : (tensor<2x3xf32>, tensor<4x2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @prelu_3(%x: tensor<2x3xf32>, %slope: tensor<3xf16>) {
  // expected-error@+1 {{'relax.prelu' op operand and slope must have one element type, got f32, f16}}
  %0 = "relax.prelu"(%x, %slope) : (tensor<2x3xf32>, tensor<3xf16>) -> tensor<2x3xf32>
  return
}

// -----

func.func @prelu_4(%x: tensor<2xi1>, %slope: tensor<2xi1>) {
  // expected-error@+1 {{'relax.prelu' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.prelu"(%x, %slope) : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @softmax_1(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.softmax' op axis -1 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.softmax"(%x) : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @softmax_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.softmax' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.softmax"(%x) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @softmax_3(%x: tensor<2x3xi32>) {
  // expected-error@+1 {{'relax.softmax' op operand must be floating point, got i32}}
  %0 = "relax.softmax"(%x) : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return
}

// -----

func.func @log_softmax(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.log_softmax' op axis -2 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.log_softmax"(%x) {axis = -2 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @hardmax(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.hardmax' op attribute 'axis' must be an integer, got 0.000000e+00 : f64}}
  %0 = "relax.hardmax"(%x) {axis = 0.0 : f64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}
