// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @an_order_without_a_rank(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.to_parts' op order must have each of the ranks 0 to 1 once, got (0, 0)}}
  %0 = "relax.to_parts"(%x) {order = array<i64: 0, 0>, parts = array<i64: 2>, ranks = 2 : i64} : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @parts_of_other_axes(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.from_parts' op parts must have a number for each axis of f32[4], got (2, 1)}}
  %0 = "relax.from_parts"(%x) {order = array<i64: 0, 1>, parts = array<i64: 2, 1>, ranks = 2 : i64} : (tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @more_parts_than_ranks(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.to_parts' op parts must be a divisor of the 2 ranks together, got (4,)}}
  %0 = "relax.to_parts"(%x) {order = array<i64: 0, 1>, parts = array<i64: 4>, ranks = 2 : i64} : (tensor<4xf32>) -> tensor<1xf32>
  return
}

// -----

func.func @a_dim_that_is_no_multiple(%x: tensor<5xf32>) {
  // expected-error@+1 {{'relax.to_parts' op axis 0 of f32[5] is 5: it must be a multiple of its 2 parts}}
  %0 = "relax.to_parts"(%x) {order = array<i64: 0, 1>, parts = array<i64: 2>, ranks = 2 : i64} : (tensor<5xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @from_parts_of_an_order(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.from_parts' op order must have each of the ranks 0 to 1 once, got (1,)}}
  %0 = "relax.from_parts"(%x) {order = array<i64: 1>, parts = array<i64: 2>, ranks = 2 : i64} : (tensor<4xf32>) -> tensor<8xf32>
  return
}
