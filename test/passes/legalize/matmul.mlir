// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// One contraction; einsum is one after the other.

// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK:       affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @test_matmul
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       func.func private @matmul
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [4, 5, 8]{{.*}}name = "matmul"
func.func @test_matmul(%arg0: tensor<4x8xf32>, %arg1: tensor<8x5xf32>) -> tensor<4x5xf32> {
  %0 = "relax.matmul"(%arg0, %arg1) : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d0, 0, d2, d4)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d1, d3, d4)>
// CHECK-LABEL: func.func @matmul_of_batches
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       func.func private @matmul
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4, 5, 8]{{.*}}name = "matmul"
func.func @matmul_of_batches(%arg0: tensor<2x1x4x8xf32>, %arg1: tensor<3x5x8xf32>) -> tensor<2x3x4x5xf32> {
  %0 = "relax.matmul"(%arg0, %arg1) {transpose_rhs = true} : (tensor<2x1x4x8xf32>, tensor<3x5x8xf32>) -> tensor<2x3x4x5xf32>
  return %0 : tensor<2x3x4x5xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK:       affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @matmul_of_integers
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       func.func private @matmul
// CHECK:       arith.extsi
// CHECK:       arith.extui
// CHECK:       arith.muli
// CHECK:       arith.addi
// CHECK:       domain = [4, 5, 8]{{.*}}name = "matmul"
func.func @matmul_of_integers(%arg0: tensor<4x8xi8>, %arg1: tensor<8x5xui8>) -> tensor<4x5xi32> {
  %0 = "relax.matmul"(%arg0, %arg1) {out_dtype = i32} : (tensor<4x8xi8>, tensor<8x5xui8>) -> tensor<4x5xi32>
  return %0 : tensor<4x5xi32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK:       affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @vector_by_matrix
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       func.func private @matmul
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [5, 8]{{.*}}name = "matmul"
func.func @vector_by_matrix(%arg0: tensor<8xf32>, %arg1: tensor<8x5xf32>) -> tensor<5xf32> {
  %0 = "relax.matmul"(%arg0, %arg1) : (tensor<8xf32>, tensor<8x5xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// CHECK-LABEL: func.func @test_einsum
// CHECK:       relax.call_tir{{.*}}callee = @einsum
// CHECK:       func.func private @einsum
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 5, 4]{{.*}}name = "einsum"
func.func @test_einsum(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
  %0 = "relax.einsum"(%arg0, %arg1) {equation = "bij,bjk->bik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>
}

// -----

// CHECK:       affine_map<(d0) -> (d0, d0)>
// CHECK-LABEL: func.func @einsum_diagonal
// CHECK:       relax.call_tir{{.*}}callee = @einsum
// CHECK:       func.func private @einsum
// CHECK:       domain = [4]{{.*}}name = "einsum"
func.func @einsum_diagonal(%arg0: tensor<4x4xf32>) -> tensor<4xf32> {
  %0 = "relax.einsum"(%arg0) {equation = "ii->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK:       affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @einsum_of_three
// CHECK:       relax.call_tir{{.*}}callee = @einsum
// CHECK:       func.func private @einsum
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 4, 3]{{.*}}name = "einsum"
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 5, 4]{{.*}}name = "einsum"
func.func @einsum_of_three(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<4x5xf32>) -> tensor<2x5xf32> {
  %0 = "relax.einsum"(%arg0, %arg1, %arg2) {equation = "ab,bc,cd->ad", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}
