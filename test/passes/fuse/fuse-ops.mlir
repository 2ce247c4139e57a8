// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --split-input-file | FileCheck %s

// An elementwise chain is one function; it runs where its last operator stood.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:    %[[Y:.*]] = call @fused_exp_negative_tanh(%arg0)
// CHECK-NEXT:    return %[[Y]]
// CHECK:       func.func private @fused_exp_negative_tanh(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {relax.primitive}
// CHECK-COUNT-3: "relax.call_tir"
func.func @chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.negative"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// Both ways of a diamond.
// CHECK-LABEL: func.func @diamond(
// CHECK-NEXT:    call @fused_exp_negative_tanh_add(%arg0)
// CHECK-NEXT:    return
func.func @diamond(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.negative"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// A contraction takes what follows it element by element, but nothing before it, no second contraction, and nothing of
// another shape.
// CHECK-LABEL: func.func @contraction(
// CHECK:         %[[R:.*]] = "relax.call_tir"(%arg0) {callee = @relu
// CHECK:         %[[M:.*]] = call @fused_matmul_add_relu(%[[R]], %arg1, %arg2)
// CHECK:         %[[N:.*]] = call @fused_matmul_tanh(%[[M]], %arg1)
// CHECK:         "relax.call_tir"(%[[N]]) {callee = @permute
func.func @contraction(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<8x8xf32> {
  %0 = "relax.relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "relax.matmul"(%0, %w) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "relax.add"(%1, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %3 = "relax.relu"(%2) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = "relax.matmul"(%3, %w) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %5 = "relax.tanh"(%4) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %6 = "relax.permute"(%5) {axes = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %6 : tensor<8x8xf32>
}

// -----

// A row takes elementwise work on both sides, but what moves elements stays outside.
// CHECK-LABEL: func.func @row(
// CHECK-NEXT:    %[[S:.*]] = call @fused_add_softmax_multiply(%arg0, %arg1)
// CHECK-NEXT:    "relax.call_tir"(%[[S]]) {callee = @permute
func.func @row(%x: tensor<4x8xf32>, %mask: tensor<8xf32>) -> tensor<8x4xf32> {
  %0 = "relax.add"(%x, %mask) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = "relax.softmax"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = "relax.multiply"(%1, %mask) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %3 = "relax.permute"(%2) {axes = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// -----

// Operators that move elements join those around them.
// CHECK-LABEL: func.func @injective(
// CHECK-NEXT:    call @fused_relu_strided_slice_permute_tanh(%arg0)
func.func @injective(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.strided_slice"(%0) {axes = array<i64: 1>, begin = array<i64: 4>, end = array<i64: 8>, strides = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %2 = "relax.permute"(%1) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "relax.tanh"(%2) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// What is not a prim function is a barrier, and a value that is returned stays a value.
// CHECK-LABEL: func.func @barrier(
// CHECK:         "relax.call_tir"(%arg0) {callee = @exp
// CHECK:         "relax.reshape"
// CHECK:         %[[T:.*]] = "relax.call_tir"(%{{.*}}) {callee = @tanh
// CHECK:         %[[Y:.*]] = "relax.call_tir"(%[[T]]) {callee = @negative
// CHECK:         return %[[T]], %[[Y]]
func.func @barrier(%x: tensor<4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.reshape"(%0) {shape = [2, 2]} : (tensor<4xf32>) -> tensor<2x2xf32>
  %2 = "relax.tanh"(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %3 = "relax.negative"(%2) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %2, %3 : tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// Within branches, too; a value that a branch reads is a value.
// CHECK-LABEL: func.func @branch(
// CHECK:         %[[E:.*]] = "relax.call_tir"(%arg1) {callee = @exp
// CHECK:         scf.if
// CHECK:           call @fused_tanh_negative(%[[E]])
// CHECK:         else
// CHECK:         "relax.call_tir"(%[[E]]) {callee = @negative
func.func @branch(%c: i1, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = scf.if %c -> tensor<4xf32> {
    %2 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = "relax.negative"(%2) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %3 : tensor<4xf32>
  } else {
    scf.yield %0 : tensor<4xf32>
  }
  %4 = "relax.negative"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %4 : tensor<4xf32>, tensor<4xf32>
}
