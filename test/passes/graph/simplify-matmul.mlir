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

// Two products that are added are one of twice the depth, if their operands are smaller than the result; three join in one.
// CHECK-LABEL: func.func @sum(
// CHECK-DAG:     %[[A:.*]] = "relax.concat"(%arg0, %arg2, %arg4) {axis = 0 : i64,
// CHECK-DAG:     %[[B:.*]] = "relax.concat"(%arg1, %arg3, %arg5) {axis = 0 : i64,
// CHECK:         "relax.matmul"(%[[A]], %[[B]]) {transpose_lhs = true} : (tensor<6x64xf32>, tensor<6x32xf32>) -> tensor<64x32xf32>
// CHECK-NOT:     relax.add
func.func @sum(%a: tensor<2x64xf32>, %b: tensor<2x32xf32>, %c: tensor<2x64xf32>, %d: tensor<2x32xf32>, %e: tensor<2x64xf32>, %f: tensor<2x32xf32>) -> tensor<64x32xf32> {
  %0 = "relax.matmul"(%a, %b) {transpose_lhs = true} : (tensor<2x64xf32>, tensor<2x32xf32>) -> tensor<64x32xf32>
  %1 = "relax.matmul"(%c, %d) {transpose_lhs = true} : (tensor<2x64xf32>, tensor<2x32xf32>) -> tensor<64x32xf32>
  %2 = "relax.add"(%0, %1) : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  %3 = "relax.matmul"(%e, %f) {transpose_lhs = true} : (tensor<2x64xf32>, tensor<2x32xf32>) -> tensor<64x32xf32>
  %4 = "relax.add"(%2, %3) : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  return %4 : tensor<64x32xf32>
}

// Products of large operands stay, as does one that has another use.
// CHECK-LABEL: func.func @sum_of_deep_products(
// CHECK-NOT:     relax.concat
// CHECK:         return
func.func @sum_of_deep_products(%a: tensor<64x8xf32>, %b: tensor<64x4xf32>, %c: tensor<2x8xf32>, %d: tensor<2x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = "relax.matmul"(%a, %b) {transpose_lhs = true} : (tensor<64x8xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
  %1 = "relax.matmul"(%c, %d) {transpose_lhs = true} : (tensor<2x8xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %3 = "relax.matmul"(%c, %d) {transpose_lhs = true} : (tensor<2x8xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
  %4 = "relax.add"(%1, %3) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %2, %4, %1 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}
