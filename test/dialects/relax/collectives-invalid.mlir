// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @all_reduce_1(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.all_reduce' op ranks must be 1 or more, got 0}}
  %0 = "relax.all_reduce"(%x) {ranks = 0 : i64} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @all_reduce_2(%x: tensor<3xi1>) {
  // expected-error@+1 {{'relax.all_reduce' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.all_reduce"(%x) {ranks = 2 : i64} : (tensor<3xi1>) -> tensor<3xi1>
  return
}

// -----

func.func @reduce_scatter_1(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.reduce_scatter' op axis 0 of f32[3] is 3: it must be a multiple of the 2 ranks}}
  %0 = "relax.reduce_scatter"(%x) {axis = 0 : i64, ranks = 2 : i64} : (tensor<3xf32>) -> tensor<1xf32>
  return
}

// -----

func.func @all_to_all_1(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'relax.all_to_all' op split_axis and concat_axis must be two axes, got -1 for both}}
  %0 = "relax.all_to_all"(%x) {split_axis = -1 : i64, concat_axis = 1 : i64, ranks = 2 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @all_gather_1(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.all_gather' op axis -1 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.all_gather"(%x) {ranks = 2 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @all_gather_of_no_ranks(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'relax.all_gather' op ranks must be 1 or more, got 0}}
  %0 = "relax.all_gather"(%x) {ranks = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @reduce_scatter_of_no_ranks(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'relax.reduce_scatter' op ranks must be 1 or more, got 0}}
  %0 = "relax.reduce_scatter"(%x) {ranks = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @all_to_all_of_no_ranks(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'relax.all_to_all' op ranks must be 1 or more, got 0}}
  %0 = "relax.all_to_all"(%x) {split_axis = 0 : i64, concat_axis = 1 : i64, ranks = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @reduce_scatter_of_bool(%x: tensor<4xi1>) {
  // expected-error@+1 {{'relax.reduce_scatter' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.reduce_scatter"(%x) {ranks = 2 : i64} : (tensor<4xi1>) -> tensor<2xi1>
  return
}
