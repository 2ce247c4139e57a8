// RUN: mirlo-opt %s --simplify | FileCheck %s

// Changes of shape are reshapes, and one of them is enough.
// CHECK-LABEL: func.func @reshapes(
// CHECK-NEXT:    %[[R:.*]] = "relax.reshape"(%arg0) {shape = [6, 4]}
// CHECK-NEXT:    return %[[R]], %arg0
func.func @reshapes(%x: tensor<2x3x4xf32>) -> (tensor<6x4xf32>, tensor<2x3x4xf32>) {
  %0 = "relax.expand_dims"(%x) {axes = array<i64: 1>} : (tensor<2x3x4xf32>) -> tensor<2x1x3x4xf32>
  %1 = "relax.reshape"(%0) {shape = [6, 4]} : (tensor<2x1x3x4xf32>) -> tensor<6x4xf32>
  %2 = "relax.squeeze"(%0) {axes = array<i64: 1>} : (tensor<2x1x3x4xf32>) -> tensor<2x3x4xf32>
  return %1, %2 : tensor<6x4xf32>, tensor<2x3x4xf32>
}

// Permutes are joined; one that moves only dims of size 1 moves nothing.
// CHECK-LABEL: func.func @permutes(
// CHECK-NEXT:    %[[P:.*]] = "relax.permute"(%arg0) {axes = array<i64: 2, 1, 0>}
// CHECK-NEXT:    %[[R:.*]] = "relax.reshape"(%arg1) {shape = [4, 1, 5]}
// CHECK-NEXT:    return %[[P]], %arg0, %[[R]]
func.func @permutes(%x: tensor<2x3x4xf32>, %y: tensor<1x4x5xf32>)
    -> (tensor<4x3x2xf32>, tensor<2x3x4xf32>, tensor<4x1x5xf32>) {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0, 2>} : (tensor<3x4x2xf32>) -> tensor<4x3x2xf32>
  %2 = "relax.permute"(%0) {axes = array<i64: 2, 0, 1>} : (tensor<3x4x2xf32>) -> tensor<2x3x4xf32>
  %3 = "relax.permute"(%y) {axes = array<i64: 1, 0, 2>} : (tensor<1x4x5xf32>) -> tensor<4x1x5xf32>
  return %1, %2, %3 : tensor<4x3x2xf32>, tensor<2x3x4xf32>, tensor<4x1x5xf32>
}

// Operators that leave their operand as it is; a reversal of the same type does not.
// CHECK-LABEL: func.func @same(
// CHECK-NEXT:    %[[S:.*]] = "relax.strided_slice"(%arg0)
// CHECK-SAME:    strides = array<i64: -1>
// CHECK-NEXT:    return %arg0, %[[S]]
func.func @same(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = "relax.expand"(%x) {shape = [3]} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = "relax.pad"(%0) {pads = array<i64: 0, 0>} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = "relax.tile"(%1) {repeats = array<i64: 1>} : (tensor<3xf32>) -> tensor<3xf32>
  %3 = "relax.strided_slice"(%2) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 9>, strides = array<i64: 1>} : (tensor<3xf32>) -> tensor<3xf32>
  %4 = "relax.strided_slice"(%3) {axes = array<i64: 0>, begin = array<i64: 2>, end = array<i64: -4>, strides = array<i64: -1>} : (tensor<3xf32>) -> tensor<3xf32>
  return %3, %4 : tensor<3xf32>, tensor<3xf32>
}

// A split is a slice per piece, so that each is computed where it is used.
// CHECK-LABEL: func.func @split(
// CHECK-DAG:     "relax.strided_slice"(%arg0) {axes = array<i64: 1>, begin = array<i64: 0>, end = array<i64: 8>, strides = array<i64: 1>}
// CHECK-DAG:     "relax.strided_slice"(%arg0) {axes = array<i64: 1>, begin = array<i64: 8>, end = array<i64: 12>, strides = array<i64: 1>}
func.func @split(%x: tensor<2x12xf32>) -> (tensor<2x8xf32>, tensor<2x4xf32>) {
  %0:2 = "relax.split"(%x) {axis = -1 : i64, sizes = [8, 4],
      resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x12xf32>) -> (tensor<2x8xf32>, tensor<2x4xf32>)
  return %0#0, %0#1 : tensor<2x8xf32>, tensor<2x4xf32>
}

// Whole heads are sliced after the reshape; pieces that begin within a head are not.
// CHECK-LABEL: func.func @heads(
// CHECK-NEXT:    %[[R:.*]] = "relax.reshape"(%arg0) {shape = [2, 6, 2]}
// CHECK-NEXT:    "relax.strided_slice"(%[[R]]) {axes = array<i64: 1>, begin = array<i64: 2>, end = array<i64: 4>, strides = array<i64: 1>}
// CHECK-SAME:    -> tensor<2x2x2xf32>
// CHECK:         %[[S:.*]] = "relax.strided_slice"(%arg0)
// CHECK:         "relax.reshape"(%[[S]]) {shape = [2, 2, 2]}
func.func @heads(%x: tensor<2x12xf32>) -> (tensor<2x2x2xf32>, tensor<2x2x2xf32>) {
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 1>, begin = array<i64: 4>, end = array<i64: 8>, strides = array<i64: 1>} : (tensor<2x12xf32>) -> tensor<2x4xf32>
  %1 = "relax.reshape"(%0) {shape = [2, 2, 2]} : (tensor<2x4xf32>) -> tensor<2x2x2xf32>
  %2 = "relax.strided_slice"(%x) {axes = array<i64: 1>, begin = array<i64: 5>, end = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x12xf32>) -> tensor<2x4xf32>
  %3 = "relax.reshape"(%2) {shape = [2, 2, 2]} : (tensor<2x4xf32>) -> tensor<2x2x2xf32>
  return %1, %3 : tensor<2x2x2xf32>, tensor<2x2x2xf32>
}
