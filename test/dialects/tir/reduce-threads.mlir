// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @sum(%x: f32) -> f32 {
  %0 = "tir.reduce_threads"(%x) ({
  ^bb0(%a: f32, %b: f32):
    %1 = arith.addf %a, %b : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>, threads = ["threadIdx.x"]} : (f32) -> f32
  return %0 : f32
}

// -----

func.func @without_an_axis(%x: f32) -> f32 {
  // expected-error@+1 {{'tir.reduce_threads' op needs a value and a hardware axis}}
  %0 = "tir.reduce_threads"(%x) ({
  ^bb0(%a: f32, %b: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>, threads = []} : (f32) -> f32
  return %0 : f32
}

// -----

func.func @of_another_type(%x: f32) -> f64 {
  // expected-error@+1 {{'tir.reduce_threads' op the results must have the types of the values, f32}}
  %0 = "tir.reduce_threads"(%x) ({
  ^bb0(%a: f32, %b: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>, threads = ["threadIdx.x"]} : (f32) -> f64
  return %0 : f64
}

// -----

func.func @of_one_value(%x: f32) -> f32 {
  // expected-error@+1 {{'tir.reduce_threads' op needs a body of one block that takes the values twice}}
  %0 = "tir.reduce_threads"(%x) ({
  ^bb0(%a: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>, threads = ["threadIdx.x"]} : (f32) -> f32
  return %0 : f32
}

// -----

func.func @of_nothing(%x: f32) -> f32 {
  // expected-error@+1 {{'tir.reduce_threads' op the body must end with a tir.yield of combined values}}
  %0 = "tir.reduce_threads"(%x) ({
  ^bb0(%a: f32, %b: f32):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>, threads = ["threadIdx.x"]} : (f32) -> f32
  return %0 : f32
}
