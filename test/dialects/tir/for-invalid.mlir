// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @unknown_kind(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op attribute 'kind' must be one of 'serial', 'parallel', 'vectorized', 'unrolled', 'bound', got 'simd'}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "simd"} : (index, index) -> ()
  return
}

// -----

func.func @bound_to_nothing(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op a loop has 'thread', a hardware axis, exactly when its kind is 'bound'}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound"} : (index, index) -> ()
  return
}

// -----

func.func @thread_of_a_serial_loop(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op a loop has 'thread', a hardware axis, exactly when its kind is 'bound'}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {thread = "threadIdx.x"} : (index, index) -> ()
  return
}

// -----

func.func @integer_bound(%lower: index, %upper: i64) {
  // expected-error@+1 {{'tir.for' op operand 'upper' must be an index, got i64}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) : (index, i64) -> ()
  return
}

// -----

func.func @one_bound(%lower: index) {
  // expected-error@+1 {{'tir.for' op needs 2 operands, got 1}}
  "tir.for"(%lower) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) : (index) -> ()
  return
}

// -----

func.func @integer_index(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op needs a body of one block that takes one index}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: i64):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) : (index, index) -> ()
  return
}

// -----

func.func @no_index(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op needs a body of one block that takes one index}}
  "tir.for"(%lower, %upper) ({
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) : (index, index) -> ()
  return
}

// -----

func.func @two_indices(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op needs a body of one block that takes one index}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index, %j: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) : (index, index) -> ()
  return
}

// -----

func.func @yields_a_value(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op the body must end with a tir.yield of nothing}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"(%i) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (index) -> ()
  }) : (index, index) -> ()
  return
}

// -----

func.func @ends_with_something_else(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op the body must end with a tir.yield of nothing}}
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    llvm.unreachable
  }) : (index, index) -> ()
  return
}

// -----

func.func @no_body(%lower: index, %upper: index) {
  // expected-error@+1 {{'tir.for' op needs 1 regions, got 0}}
  "tir.for"(%lower, %upper) : (index, index) -> ()
  return
}

// -----

func.func @yield_outside() {
  // expected-error@+1 {{'tir.yield' op ends the body of 'tir.block', 'tir.for' or 'tir.reduce_threads', but is in 'func.func'}}
  "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
}
