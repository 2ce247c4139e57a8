// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @find_1(%x: tensor<3xf32>, %keys: tensor<5xi64>) {
  // expected-error@+1 {{'relax.find_sorted' op operand and keys must have one element type, got f32, i64}}
  %0 = "relax.find_sorted"(%x, %keys) : (tensor<3xf32>, tensor<5xi64>) -> tensor<3xi64>
  return
}

// -----

func.func @tree_1(%x: tensor<8x3xf32>, %t: tensor<4xf32>, %nodes: tensor<4x3xi64>, %roots: tensor<2xi64>, %w: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op the last dim of nodes i64[4, 3] and what is said of a node must agree, got 3 and 4}}
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x3xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_2(%x: tensor<8x3xf32>, %t: tensor<5xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>, %w: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op the nodes of i64[4, 4] and thresholds f32[5] must agree, got 4 and 5}}
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) : (tensor<8x3xf32>, tensor<5xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_3(%x: tensor<8x3xf32>, %t: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>, %w: tensor<0x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op there must be leaves, got f32[0, 1]}}
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<0x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_4(%x: tensor<8x3xf32>, %t: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>, %w: tensor<6x1xf32>) {
  // expected-error@+1 {{attribute 'aggregate' must be one of 'sum', 'min', 'max'}}
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) {aggregate = "mean"} : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}
