// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @det_1(%x0: tensor<f32>) {
  // expected-error@+1 {{'relax.det' op operand must have at least two dims, got f32[]}}
  %0 = "relax.det"(%x0) : (tensor<f32>) -> tensor<?xf32, #relax.dims<["b"]>>
  return
}

// -----

func.func @inverse_1(%x0: tensor<3xi8>) {
  // expected-error@+1 {{'relax.inverse' op operand must be floating point, got i8}}
  %0 = "relax.inverse"(%x0) : (tensor<3xi8>) -> tensor<?x3x3xf32, #relax.dims<["b", 3, 3]>>
  return
}

// -----

func.func @lu_1(%x0: tensor<3xf32>) {
  // expected-error@+1 {{'relax.lu' op operand must have at least two dims, got f32[3]}}
  %0:2 = "relax.lu"(%x0) : (tensor<3xf32>) -> (tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>, tensor<?x3xi32, #relax.dims<["b", 3]>>)
  return
}

// -----

func.func @triangular_solve_1(%x0: tensor<2x3x4xf32>, %x1: tensor<3x3x5xf32>) {
  // expected-error@+1 {{'relax.triangular_solve' op the last two dims of f32[2, 3, 4] must agree, got 3 and 4}}
  %0 = "relax.triangular_solve"(%x0, %x1) {lower = false} : (tensor<2x3x4xf32>, tensor<3x3x5xf32>) -> tensor<?x3x5xf32, #relax.dims<["b", 3, 5]>>
  return
}
