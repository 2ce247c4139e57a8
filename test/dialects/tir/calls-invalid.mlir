// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @no_function(%x0: f32) {
  // expected-error@+1 {{'tir.call_extern' op needs the attribute 'function', a string}}
  %0 = "tir.call_extern"(%x0) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> f32
  return
}

// -----

func.func @no_c_name(%x0: f32) {
  // expected-error@+1 {{'tir.call_extern' op attribute 'function' must be the name of a C function, got 'std::sin'}}
  %0 = "tir.call_extern"(%x0) {function = "std::sin", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> f32
  return
}

// -----

func.func @tensor(%x0: tensor<4xf32>) {
  // expected-error@+1 {{'tir.call_extern' op operand #0 must be a scalar or a buffer (memref), got tensor<4xf32>}}
  "tir.call_extern"(%x0) {function = "f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @vector(%x0: f32, %x1: vector<4xf32>) {
  // expected-error@+1 {{'tir.call_extern' op operand #1 must be a scalar or a buffer (memref), got vector<4xf32>}}
  "tir.call_extern"(%x0, %x1) {function = "f", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (f32, vector<4xf32>) -> ()
  return
}

// -----

func.func @buffer_result() {
  // expected-error@+1 {{'tir.call_extern' op a C function returns one scalar or nothing, got (memref<4xf32>)}}
  %0 = "tir.call_extern"() {function = "f", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : () -> memref<4xf32>
  return
}

// -----

func.func @two_results() {
  // expected-error@+1 {{'tir.call_extern' op a C function returns one scalar or nothing, got (f32, f32)}}
  %0:2 = "tir.call_extern"() {function = "f", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 0, 0, 0>} : () -> (f32, f32)
  return
}

// -----

func.func @pure_is_no_bool(%x0: f32) {
  // expected-error@+1 {{'tir.call_extern' op attribute 'pure' must be true or false, got 1 : i64}}
  %0 = "tir.call_extern"(%x0) {function = "sinf", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, pure = 1 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> f32
  return
}
