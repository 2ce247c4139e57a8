// RUN: mirlo-opt %s --lower-loops --split-input-file --verify-diagnostics

func.func @bound(%y: memref<8xf32>) attributes {tir.prim_func} {
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  // expected-error @below {{the loop is bound to 'block.x', which this target does not have}}
  "tir.for"(%zero, %eight) ({
  ^bb0(%i: index):
    memref.store %one, %y[%i] : memref<8xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "block.x"} : (index, index) -> ()
  return
}

// -----

func.func @many(%y: memref<1000xf32>) attributes {tir.prim_func} {
  %zero = arith.constant 0 : index
  %many = arith.constant 1000 : index
  %one = arith.constant 1.0 : f32
  // expected-error @below {{unrolling 1000 iterations would explode: at most 256}}
  "tir.for"(%zero, %many) ({
  ^bb0(%i: index):
    memref.store %one, %y[%i] : memref<1000xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "unrolled"} : (index, index) -> ()
  return
}

// -----

func.func @unknown(%y: memref<8xf32>, %n: index) attributes {tir.prim_func} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  // expected-error @below {{an unrolled loop needs bounds that are constants}}
  "tir.for"(%zero, %n) ({
  ^bb0(%i: index):
    memref.store %one, %y[%i] : memref<8xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "unrolled"} : (index, index) -> ()
  return
}

// -----

func.func @types(%y: memref<8xf32>, %n: index) attributes {tir.prim_func} {
  "tir.call_extern"(%n) {function = "f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (index) -> ()
  // expected-error @below {{'f' is called with (memref<8xf32>) -> (), but with other types elsewhere}}
  "tir.call_extern"(%y) {function = "f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8xf32>) -> ()
  return
}
