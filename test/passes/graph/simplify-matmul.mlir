// RUN: mirlo-opt %s --simplify | FileCheck %s

// A constant that is read transposed is stored transposed (fold-constant does the work).
// CHECK-LABEL: func.func @weight(
// CHECK:         %[[W:.*]] = "relax.constant"() {param = "w"}
// CHECK:         %[[P:.*]] = "relax.permute"(%[[W]]) {axes = array<i64: 1, 0>}
// CHECK:         "relax.matmul"(%arg0, %[[P]]) :
func.func @weight(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<16x8xf32>
  %0 = "relax.matmul"(%x, %w) {transpose_rhs = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// A permute of the last two dims is read transposed instead, on either side, and back.
// CHECK-LABEL: func.func @permuted(
// CHECK-NEXT:    "relax.matmul"(%arg0, %arg1) {transpose_rhs = true}
func.func @permuted(%x: tensor<2x4x8xf32>, %y: tensor<2x16x8xf32>) -> tensor<2x4x16xf32> {
  %0 = "relax.permute"(%y) {axes = array<i64: 0, 2, 1>} : (tensor<2x16x8xf32>) -> tensor<2x8x16xf32>
  %1 = "relax.permute"(%x) {axes = array<i64: 0, 2, 1>} : (tensor<2x4x8xf32>) -> tensor<2x8x4xf32>
  %2 = "relax.matmul"(%1, %0) {transpose_lhs = true} : (tensor<2x8x4xf32>, tensor<2x8x16xf32>) -> tensor<2x4x16xf32>
  return %2 : tensor<2x4x16xf32>
}

// A batch of matrices times one matrix is the product of all rows with it; a batch of one stays as it is.
// CHECK-LABEL: func.func @batch(
// CHECK:         %[[R:.*]] = "relax.reshape"(%arg0) {shape = [12, 8]}
// CHECK:         %[[M:.*]] = "relax.matmul"(%[[R]], %arg2) : (tensor<12x8xf32>, tensor<8x5xf32>) -> tensor<12x5xf32>
// CHECK:         "relax.reshape"(%[[M]]) {shape = [3, 4, 5]}
// CHECK:         "relax.matmul"(%arg1, %arg2) : (tensor<1x4x8xf32>
func.func @batch(%x: tensor<3x4x8xf32>, %y: tensor<1x4x8xf32>, %w: tensor<8x5xf32>) -> (tensor<3x4x5xf32>, tensor<1x4x5xf32>) {
  %0 = "relax.matmul"(%x, %w) : (tensor<3x4x8xf32>, tensor<8x5xf32>) -> tensor<3x4x5xf32>
  %1 = "relax.matmul"(%y, %w) : (tensor<1x4x8xf32>, tensor<8x5xf32>) -> tensor<1x4x5xf32>
  return %0, %1 : tensor<3x4x5xf32>, tensor<1x4x5xf32>
}

// The rows of the product become the last dim: with the operands exchanged, its columns are, and only outer dims move.
// CHECK-LABEL: func.func @permuted_product(
// CHECK-NEXT:    %[[P:.*]] = "relax.matmul"(%arg1, %arg0) {{{.*}}transpose_lhs = true, transpose_rhs = true} : (tensor<2x3x4x6xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x6x5xf32>
// CHECK-NEXT:    "relax.permute"(%[[P]]) {axes = array<i64: 0, 2, 1, 3>}
func.func @permuted_product(%x: tensor<2x3x5x4xf32>, %y: tensor<2x3x4x6xf32>) -> tensor<2x6x3x5xf32> {
  %0 = "relax.matmul"(%x, %y) : (tensor<2x3x5x4xf32>, tensor<2x3x4x6xf32>) -> tensor<2x3x5x6xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x3x5x6xf32>) -> tensor<2x6x3x5xf32>
  return %1 : tensor<2x6x3x5xf32>
}
