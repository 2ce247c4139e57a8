// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @matmul_1(%lhs: tensor<2x3xf32>, %rhs: tensor<3x4xf16>) {
  // expected-error@+1 {{'relax.matmul' op operands must have one element type, got f32, f16}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3x4xf16>) -> tensor<2x4xf32>
  return
}

// -----

func.func @matmul_2(%lhs: tensor<2x3xf32>, %rhs: tensor<4x5xf32>) {
  // expected-error@+1 {{'relax.matmul' op the contracted dims of f32[2, 3] and f32[4, 5] must agree, got 3 and 4}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @matmul_3(%lhs: tensor<2x?xf32, #relax.dims<[2, "k"]>>, %rhs: tensor<?x5xf32, #relax.dims<["n", 5]>>) {
  // expected-error@+1 {{'relax.matmul' op the contracted dims of f32[2, k] and f32[n, 5] must agree, got k and n (dims that are always equal must have one name)}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x?xf32, #relax.dims<[2, "k"]>>, tensor<?x5xf32, #relax.dims<["n", 5]>>) -> tensor<2x5xf32>
  return
}

// -----

func.func @matmul_4(%lhs: tensor<f32>, %rhs: tensor<3xf32>) {
  // expected-error@+1 {{'relax.matmul' op operands must have rank 1 or more, got f32[] and f32[3]}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<f32>, tensor<3xf32>) -> tensor<f32>
  return
}

// -----

func.func @matmul_5(%lhs: tensor<3xf32>, %rhs: tensor<3xf32>) {
  // expected-error@+1 {{'relax.matmul' op a vector cannot be transposed}}
  %0 = "relax.matmul"(%lhs, %rhs) {transpose_lhs = true} : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
  return
}

// -----

func.func @matmul_6(%lhs: tensor<2x3xi1>, %rhs: tensor<3x4xi1>) {
  // expected-error@+1 {{'relax.matmul' op operands must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<3x4xi1>) -> tensor<2x4xi1>
  return
}

// -----

func.func @matmul_7(%lhs: tensor<2x2x3xf32>, %rhs: tensor<3x3x4xf32>) {
  // expected-error@+1 {{'relax.matmul' op shapes [2] and [3] do not broadcast: dims 2 and 3 are neither equal nor 1}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x2x3xf32>, tensor<3x3x4xf32>) -> tensor<2x2x4xf32>
  return
}

// -----

func.func @matmul_8(%lhs: tensor<2x3xi8>, %rhs: tensor<3x4xui8>) {
  // expected-error@+1 {{'relax.matmul' op operands must have one element type, got i8, u8}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x3xi8>, tensor<3x4xui8>) -> tensor<2x4xi32>
  return
}

// -----

func.func @matmul_9(%lhs: tensor<2x3xi8>, %rhs: tensor<3x4xi8>) {
  // expected-error@+1 {{'relax.matmul' op out_dtype f32 cannot hold sums of products of i8}}
  %0 = "relax.matmul"(%lhs, %rhs) {out_dtype = f32} : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xf32>
  return
}

// -----

func.func @matmul_10(%lhs: tensor<2x3xf32>, %rhs: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.matmul' op out_dtype f16 cannot hold sums of products of f32}}
  %0 = "relax.matmul"(%lhs, %rhs) {out_dtype = f16} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf16>
  return
}

// -----

func.func @matmul_11(%lhs: tensor<2x3xf32>, %rhs: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.matmul' op attribute 'out_dtype' must be an element type such as f32, got complex<f32>}}
  %0 = "relax.matmul"(%lhs, %rhs) {out_dtype = complex<f32>} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @matmul_12(%lhs: tensor<2x3xf32>, %rhs: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.matmul' op result is declared f32[2, 3], but its operands and attributes make it f32[2, 4]}}
  %0 = "relax.matmul"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @matmul_13(%lhs: tensor<2x3xf32>, %rhs: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.matmul' op attribute 'transpose_rhs' must be true or false, got 1 : i64}}
  %0 = "relax.matmul"(%lhs, %rhs) {transpose_rhs = 1 : i64} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @einsum_1(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op equation 'ij,jk->ik' is for 2 operands, got 1}}
  %0 = "relax.einsum"(%x0) {equation = "ij,jk->ik", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_2(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op equation 'i2->i' must have letters and at most one '...' per operand, got 'i2'}}
  %0 = "relax.einsum"(%x0) {equation = "i2->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_3(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op 'ijk' of equation 'ijk->i' does not fit operand #0 of rank 2}}
  %0 = "relax.einsum"(%x0) {equation = "ijk->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_4(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op 'i' of equation 'i->i' does not fit operand #0 of rank 2}}
  %0 = "relax.einsum"(%x0) {equation = "i->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_5(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op index 'k' of the result is in no operand of equation 'ij->ik'}}
  %0 = "relax.einsum"(%x0) {equation = "ij->ik", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_6(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op index 'i' is twice in the result of equation 'ij->ii'}}
  %0 = "relax.einsum"(%x0) {equation = "ij->ii", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_7(%x0: tensor<2x3xf32>, %x1: tensor<4x5xf32>) {
  // expected-error@+1 {{'relax.einsum' op index 'j' of 'ij,jk->ik' is 3 in one place and 4 in another}}
  %0 = "relax.einsum"(%x0, %x1) {equation = "ij,jk->ik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_8(%x0: tensor<2x3xf32>, %x1: tensor<3x5xf16>) {
  // expected-error@+1 {{'relax.einsum' op operands must have one element type, got f32, f16}}
  %0 = "relax.einsum"(%x0, %x1) {equation = "ij,jk->ik", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<3x5xf16>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_9(%x0: tensor<2x3xi1>) {
  // expected-error@+1 {{'relax.einsum' op operands must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.einsum"(%x0) {equation = "ij->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xi1>) -> tensor<2x3xi1>
  return
}

// -----

func.func @einsum_10(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op needs the attribute 'equation', a string}}
  %0 = "relax.einsum"(%x0) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_11() {
  // expected-error@+1 {{'relax.einsum' op equation '' is for 1 operands, got 0}}
  %0 = "relax.einsum"() {equation = "", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<f32>
  return
}

// -----

func.func @einsum_12(%x0: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.einsum' op equation '...i...->i' must have letters and at most one '...' per operand, got '...i...'}}
  %0 = "relax.einsum"(%x0) {equation = "...i...->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_13(%x: tensor<4x5xf32>) {
  // expected-error@+1 {{'relax.einsum' op index 'i' of 'ii->i' is 4 in one place and 5 in another}}
  %0 = "relax.einsum"(%x) {equation = "ii->i", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x5xf32>) -> tensor<4xf32>
  return
}
