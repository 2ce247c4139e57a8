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

// -----

func.func @and_of_numbers(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.all_reduce' op operand must be bool for the reduction 'and', got f32[3]}}
  %0 = "relax.all_reduce"(%x) {ranks = 2 : i64, reduction = "and"} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @groups_without_a_rank(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.all_reduce' op groups must have each of the ranks 0 to 3 once, found ((0, 1), (2, 1))}}
  %0 = "relax.all_reduce"(%x) {ranks = 4 : i64, groups = array<i64: 0, 1, 2, 1>, group_size = 2 : i64} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @groups_without_a_size(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.all_reduce' op groups has 2 ranks: expected rows of 0, the group_size}}
  %0 = "relax.all_reduce"(%x) {ranks = 2 : i64, groups = array<i64: 0, 1>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @groups_of_two_sizes(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.all_gather' op groups must have one size, got groups of 1, 2 ranks}}
  %0 = "relax.all_gather"(%x) {ranks = 3 : i64, groups = array<i64: 0, 1, 2, -1>, group_size = 2 : i64} : (tensor<3xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @pairs_of_other_ranks(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.collective_permute' op pairs must be sources and targets from 0 to 1, got (0, 2)}}
  %0 = "relax.collective_permute"(%x) {ranks = 2 : i64, pairs = array<i64: 0, 2>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @a_target_of_two(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.collective_permute' op pairs must have each target once, got (0, 1, 1, 1)}}
  %0 = "relax.collective_permute"(%x) {ranks = 2 : i64, pairs = array<i64: 0, 1, 1, 1>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @permute_of_no_ranks(%x: tensor<3xf32>) {
  // expected-error@+1 {{'relax.collective_permute' op ranks must be 1 or more, got 0}}
  %0 = "relax.collective_permute"(%x) {ranks = 0 : i64, pairs = array<i64>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @the_number_of_no_ranks() {
  // expected-error@+1 {{'relax.rank_id' op ranks must be 1 or more, got 0}}
  %0 = "relax.rank_id"() {ranks = 0 : i64} : () -> tensor<ui32>
  return
}
