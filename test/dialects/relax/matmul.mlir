// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Matrix products and einsum.

// CHECK-LABEL: func.func @matrices(
func.func @matrices(%lhs: tensor<2x3xf32>, %rhs: tensor<3x4xf32>) -> tensor<2x4xf32> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) :
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @transposed(
func.func @transposed(%lhs: tensor<?x3x2xf32, #relax.dims<["b", 3, 2]>>, %rhs: tensor<4x3xf32>) -> tensor<?x2x4xf32, #relax.dims<["b", 2, 4]>> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) {transpose_lhs = true, transpose_rhs = true} :
  %0 = "relax.matmul"(%lhs, %rhs) {transpose_lhs = true, transpose_rhs = true} : (tensor<?x3x2xf32, #relax.dims<["b", 3, 2]>>, tensor<4x3xf32>) -> tensor<?x2x4xf32, #relax.dims<["b", 2, 4]>>
  return %0 : tensor<?x2x4xf32, #relax.dims<["b", 2, 4]>>
}

// CHECK-LABEL: func.func @batched(
func.func @batched(%lhs: tensor<?x1x?x?xf16, #relax.dims<["b", 1, "s", "k"]>>, %rhs: tensor<8x?x64xf16, #relax.dims<[8, "k", 64]>>) -> tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) :
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<?x1x?x?xf16, #relax.dims<["b", 1, "s", "k"]>>, tensor<8x?x64xf16, #relax.dims<[8, "k", 64]>>) -> tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>>
  return %0 : tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>>
}

// CHECK-LABEL: func.func @vectors(
func.func @vectors(%lhs: tensor<3xf32>, %rhs: tensor<3xf32>) -> tensor<f32> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) :
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @vector_matrix(
func.func @vector_matrix(%lhs: tensor<3xf32>, %rhs: tensor<5x3x4xf32>) -> tensor<5x4xf32> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) :
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<3xf32>, tensor<5x3x4xf32>) -> tensor<5x4xf32>
  return %0 : tensor<5x4xf32>
}

// CHECK-LABEL: func.func @matrix_vector(
func.func @matrix_vector(%lhs: tensor<?x3xf32, #relax.dims<["b", 3]>>, %rhs: tensor<3xf32>) -> tensor<?xf32, #relax.dims<["b"]>> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) :
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<?x3xf32, #relax.dims<["b", 3]>>, tensor<3xf32>) -> tensor<?xf32, #relax.dims<["b"]>>
  return %0 : tensor<?xf32, #relax.dims<["b"]>>
}

// CHECK-LABEL: func.func @quantized(
func.func @quantized(%lhs: tensor<2x3xui8>, %rhs: tensor<3x4xi8>) -> tensor<2x4xi32> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) {out_dtype = i32} :
  %0 = "relax.matmul"(%lhs, %rhs) {out_dtype = i32} : (tensor<2x3xui8>, tensor<3x4xi8>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// CHECK-LABEL: func.func @wider_sum(
func.func @wider_sum(%lhs: tensor<2x3xbf16>, %rhs: tensor<3x4xbf16>) -> tensor<2x4xf32> {
  // CHECK: "relax.matmul"(%{{.*}}, %{{.*}}) {out_dtype = f32} :
  %0 = "relax.matmul"(%lhs, %rhs) {out_dtype = f32} : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @einsum_batched(
func.func @einsum_batched(%x0: tensor<?x?x?xf32, #relax.dims<["b", "i", "j"]>>, %x1: tensor<?x?x4xf32, #relax.dims<["b", "j", 4]>>) -> tensor<?x?x4xf32, #relax.dims<["b", "i", 4]>> {
  // CHECK: "relax.einsum"(%{{.*}}, %{{.*}}) {equation = "bij,bjk->bik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.einsum"(%x0, %x1) {equation = "bij,bjk->bik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x?x?xf32, #relax.dims<["b", "i", "j"]>>, tensor<?x?x4xf32, #relax.dims<["b", "j", 4]>>) -> tensor<?x?x4xf32, #relax.dims<["b", "i", 4]>>
  return %0 : tensor<?x?x4xf32, #relax.dims<["b", "i", 4]>>
}

// CHECK-LABEL: func.func @einsum_ellipsis(
func.func @einsum_ellipsis(%x0: tensor<2x1x3x4xf32>, %x1: tensor<5x4x6xf32>) -> tensor<2x5x3x6xf32> {
  // CHECK: "relax.einsum"(%{{.*}}, %{{.*}}) {equation = "...ij,...jk->...ik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.einsum"(%x0, %x1) {equation = "...ij,...jk->...ik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x1x3x4xf32>, tensor<5x4x6xf32>) -> tensor<2x5x3x6xf32>
  return %0 : tensor<2x5x3x6xf32>
}

// CHECK-LABEL: func.func @einsum_implicit(
func.func @einsum_implicit(%x0: tensor<?x3xf32, #relax.dims<["n", 3]>>, %x1: tensor<3x?xf32, #relax.dims<[3, "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>> {
  // CHECK: "relax.einsum"(%{{.*}}, %{{.*}}) {equation = "ij,jk", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.einsum"(%x0, %x1) {equation = "ij,jk", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x3xf32, #relax.dims<["n", 3]>>, tensor<3x?xf32, #relax.dims<[3, "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>>
  return %0 : tensor<?x?xf32, #relax.dims<["n", "m"]>>
}

// CHECK-LABEL: func.func @einsum_diagonal(
func.func @einsum_diagonal(%x0: tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>> {
  // CHECK: "relax.einsum"(%{{.*}}) {equation = "bii->bi", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.einsum"(%x0) {equation = "bii->bi", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  return %0 : tensor<?x?xf32, #relax.dims<["b", "n"]>>
}

// CHECK-LABEL: func.func @einsum_scalar(
func.func @einsum_scalar(%x0: tensor<4xf32>, %x1: tensor<4xf32>, %x2: tensor<4xf32>) -> tensor<f32> {
  // CHECK: "relax.einsum"(%{{.*}}, %{{.*}}, %{{.*}}) {equation = "i,i,i->", operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.einsum"(%x0, %x1, %x2) {equation = "i,i,i->", operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}
