// RUN: mirlo-opt %s --simplify | FileCheck %s

// A product on [64, 8] that is looked at as [1, 64, 8] by what follows: the reshape comes last, bias and residual fit.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:    %[[M:.*]] = "relax.matmul"(%arg0, %arg1)
// CHECK-NEXT:    %[[A:.*]] = "relax.add"(%[[M]], %arg2) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
// CHECK-NEXT:    %[[T:.*]] = "relax.tanh"(%[[A]])
// CHECK-NEXT:    %[[R:.*]] = "relax.reshape"(%arg3) {shape = [64, 8]}
// CHECK-NEXT:    %[[S:.*]] = "relax.add"(%[[R]], %[[T]])
// CHECK-NEXT:    %[[N:.*]] = "relax.layer_norm"(%[[S]], %arg2, %arg2) {{{.*}}} : (tensor<64x8xf32>, tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT:    %[[Y:.*]] = "relax.reshape"(%[[N]]) {shape = [1, 64, 8]}
// CHECK-NEXT:    return %[[Y]]
func.func @chain(%x: tensor<64x4xf32>, %w: tensor<4x8xf32>, %b: tensor<8xf32>, %rest: tensor<1x64x8xf32>) -> tensor<1x64x8xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<64x4xf32>, tensor<4x8xf32>) -> tensor<64x8xf32>
  %1 = "relax.reshape"(%0) {shape = [1, 64, 8]} : (tensor<64x8xf32>) -> tensor<1x64x8xf32>
  %2 = "relax.add"(%1, %b) : (tensor<1x64x8xf32>, tensor<8xf32>) -> tensor<1x64x8xf32>
  %3 = "relax.tanh"(%2) : (tensor<1x64x8xf32>) -> tensor<1x64x8xf32>
  %4 = "relax.add"(%rest, %3) : (tensor<1x64x8xf32>, tensor<1x64x8xf32>) -> tensor<1x64x8xf32>
  %5 = "relax.layer_norm"(%4, %b, %b) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<1x64x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<1x64x8xf32>
  return %5 : tensor<1x64x8xf32>
}

// An operand that broadcasts along dims which the reshape makes keeps its reshape; so does another axis.
// CHECK-LABEL: func.func @declined(
// CHECK:         "relax.multiply"(%{{.*}}, %{{.*}}) : (tensor<4x2x3xf32>, tensor<2x1xf32>) -> tensor<4x2x3xf32>
// CHECK:         "relax.softmax"(%{{.*}}) {axis = 1 : i64} : (tensor<4x2x3xf32>) -> tensor<4x2x3xf32>
func.func @declined(%x: tensor<4x6xf32>, %scale: tensor<2x1xf32>) -> (tensor<4x2x3xf32>, tensor<4x2x3xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = "relax.reshape"(%0) {shape = [4, 2, 3]} : (tensor<4x6xf32>) -> tensor<4x2x3xf32>
  %2 = "relax.multiply"(%1, %scale) : (tensor<4x2x3xf32>, tensor<2x1xf32>) -> tensor<4x2x3xf32>
  %3 = "relax.softmax"(%1) {axis = 1 : i64} : (tensor<4x2x3xf32>) -> tensor<4x2x3xf32>
  return %2, %3 : tensor<4x2x3xf32>, tensor<4x2x3xf32>
}

// A number per row meets the same elements; a reshape of an input has no kernel to follow.
// CHECK-LABEL: func.func @rows(
// CHECK:         %[[R:.*]] = "relax.relu"(%arg0)
// CHECK:         %[[S:.*]] = "relax.reshape"(%arg1) {shape = [4, 1]}
// CHECK:         "relax.multiply"(%[[R]], %[[S]]) : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
// CHECK:         %[[V:.*]] = "relax.reshape"(%arg0) {shape = [2, 2, 6]}
// CHECK:         "relax.relu"(%[[V]]) : (tensor<2x2x6xf32>)
func.func @rows(%x: tensor<4x6xf32>, %scale: tensor<2x2x1xf32>) -> (tensor<2x2x6xf32>, tensor<2x2x6xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = "relax.reshape"(%0) {shape = [2, 2, 6]} : (tensor<4x6xf32>) -> tensor<2x2x6xf32>
  %2 = "relax.multiply"(%1, %scale) : (tensor<2x2x6xf32>, tensor<2x2x1xf32>) -> tensor<2x2x6xf32>
  %3 = "relax.reshape"(%x) {shape = [2, 2, 6]} : (tensor<4x6xf32>) -> tensor<2x2x6xf32>
  %4 = "relax.relu"(%3) : (tensor<2x2x6xf32>) -> tensor<2x2x6xf32>
  return %2, %4 : tensor<2x2x6xf32>, tensor<2x2x6xf32>
}
