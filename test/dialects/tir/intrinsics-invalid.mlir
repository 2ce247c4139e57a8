// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @integer_operand(%x: i32) {
  // expected-error@+1 {{'tir.exp' op operand #0 must be floating point, a scalar or a vector, got i32}}
  %0 = "tir.exp"(%x) : (i32) -> i32
  return
}

// -----

func.func @tensor_operand(%x: tensor<4xf32>) {
  // expected-error@+1 {{'tir.exp' op operand #0 must be floating point, a scalar or a vector, got tensor<4xf32>}}
  %0 = "tir.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @float_operand(%x: vector<4xf32>) {
  // expected-error@+1 {{'tir.popcount' op operand #0 must be integer, a scalar or a vector, got vector<4xf32>}}
  %0 = "tir.popcount"(%x) : (vector<4xf32>) -> vector<4xf32>
  return
}

// -----

func.func @two_types(%x: f32, %y: f64) {
  // expected-error@+1 {{'tir.pow' op operands must have one type, got f32, f64}}
  %0 = "tir.pow"(%x, %y) : (f32, f64) -> f32
  return
}

// -----

func.func @two_widths(%x: vector<4xi8>, %y: vector<8xi8>) {
  // expected-error@+1 {{'tir.sat_adds' op operands must have one type, got vector<4xi8>, vector<8xi8>}}
  %0 = "tir.sat_adds"(%x, %y) : (vector<4xi8>, vector<8xi8>) -> vector<4xi8>
  return
}

// -----

func.func @exponent_of_another_shape(%x: vector<4xf32>, %n: i32) {
  // expected-error@+1 {{'tir.ldexp' op operands must have one shape, got vector<4xf32> and i32}}
  %0 = "tir.ldexp"(%x, %n) : (vector<4xf32>, i32) -> vector<4xf32>
  return
}

// -----

func.func @float_exponent(%x: f32, %y: f32) {
  // expected-error@+1 {{'tir.ldexp' op operand #1 must be integer, a scalar or a vector, got f32}}
  %0 = "tir.ldexp"(%x, %y) : (f32, f32) -> f32
  return
}

// -----

func.func @other_result(%x: f32) {
  // expected-error@+1 {{'tir.tanh' op result must be f32, got f64}}
  %0 = "tir.tanh"(%x) : (f32) -> f64
  return
}

// -----

func.func @test_result(%x: vector<4xf32>) {
  // expected-error@+1 {{'tir.isnan' op result must be vector<4xi1>, got vector<4xf32>}}
  %0 = "tir.isnan"(%x) : (vector<4xf32>) -> vector<4xf32>
  return
}

// -----

func.func @narrow_test_result(%x: vector<4xf32>) {
  // expected-error@+1 {{'tir.isnan' op result must be vector<4xi1>, got i1}}
  %0 = "tir.isnan"(%x) : (vector<4xf32>) -> i1
  return
}

// -----

func.func @missing_operand(%x: f32) {
  // expected-error@+1 {{'tir.fma' op needs 3 operands, got 1}}
  %0 = "tir.fma"(%x) : (f32) -> f32
  return
}

// -----

func.func @no_such_attribute(%x: f32) {
  // expected-error@+1 {{'tir.exp' op has no attribute 'fastmath'; it has: none}}
  %0 = "tir.exp"(%x) {fastmath = true} : (f32) -> f32
  return
}
