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

// -----

func.func @tree_5(%x: tensor<8x3xf32>, %t: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>, %w: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op depth must be the nodes of the longest path, or 0, got -1}}
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) {depth = -1 : i64} : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @find_sorted_1(%x0: tensor<i1>, %x1: tensor<5xi32>) {
  // expected-error@+1 {{'relax.find_sorted' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.find_sorted"(%x0, %x1) : (tensor<i1>, tensor<5xi32>) -> tensor<6xi64>
  return
}

// -----

func.func @find_sorted_2(%x0: tensor<i32>, %x1: tensor<i32>) {
  // expected-error@+1 {{'relax.find_sorted' op keys must have rank 1, got i32[]}}
  %0 = "relax.find_sorted"(%x0, %x1) : (tensor<i32>, tensor<i32>) -> tensor<6xi64>
  return
}

// -----

func.func @tree_ensemble_1(%x0: tensor<8x3xi64>, %x1: tensor<f32>, %x2: tensor<4x4xi64>, %x3: tensor<2xi64>, %x4: tensor<7x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op operand must be floating point, got i64}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xi64>, tensor<f32>, tensor<4x4xi64>, tensor<2xi64>, tensor<7x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_2(%x0: tensor<3xf32>, %x1: tensor<f32>, %x2: tensor<4x4xi64>, %x3: tensor<2xi64>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op operand must have rank 2, got f32[3]}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<3xf32>, tensor<f32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_3(%x0: tensor<8x3xf32>, %x1: tensor<4xi8>, %x2: tensor<4x4xi64>, %x3: tensor<2xi64>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op operand and thresholds must have one element type, got f32, i8}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<4xi8>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_4(%x0: tensor<9x3xf32>, %x1: tensor<f32>, %x2: tensor<4x4xi64>, %x3: tensor<2xi64>, %x4: tensor<0x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op thresholds must have rank 1, got f32[]}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<9x3xf32>, tensor<f32>, tensor<4x4xi64>, tensor<2xi64>, tensor<0x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_5(%x0: tensor<8x3xf32>, %x1: tensor<4xf32>, %x2: tensor<i64>, %x3: tensor<3xi64>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op nodes must have rank 2, got i64[]}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<4xf32>, tensor<i64>, tensor<3xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_6(%x0: tensor<8x3xf32>, %x1: tensor<4xf32>, %x2: tensor<4x4xi64>, %x3: tensor<i8>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op roots must have rank 1, got i8[]}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<i8>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_7(%x0: tensor<8x3xf32>, %x1: tensor<5xf32>, %x2: tensor<4x4xi64>, %x3: tensor<2xi64>, %x4: tensor<6x1xi1>) {
  // expected-error@+1 {{'relax.tree_ensemble' op weights must be floating point, got bool}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<5xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xi1>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_8(%x0: tensor<8x3xf32>, %x1: tensor<4xf32>, %x2: tensor<4x4xi64>, %x3: tensor<2xi64>, %x4: tensor<6xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op weights must have rank 2, got f32[6]}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_9(%x0: tensor<8x3xf32>, %x1: tensor<4xf32>, %x2: tensor<4x4xi64>, %x3: tensor<2xf32>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op roots must be integer or unsigned integer, got f32}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xf32>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_10(%x0: tensor<8x3xf32>, %x1: tensor<4xf32>, %x2: tensor<4x4xui8>, %x3: tensor<2xi64>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op nodes must be i32 or i64, got u8[4, 4]}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xui8>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return
}

// -----

func.func @tree_ensemble_11(%x0: tensor<2x3xf32>, %x1: tensor<2xf32>, %x2: tensor<2x4xi64>, %x3: tensor<1xi32>, %x4: tensor<3x3xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op nodes and roots must have one element type, got i64, i32}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) {mode = 0} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2x4xi64>, tensor<1xi32>, tensor<3x3xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @tree_ensemble_12(%x0: tensor<7x3xf32>, %x1: tensor<4xf32>, %x2: tensor<4x4xi64>, %x3: tensor<8xi64>, %x4: tensor<6x1xf32>) {
  // expected-error@+1 {{'relax.tree_ensemble' op mode must be -1, or how a node compares, got -2}}
  %0 = "relax.tree_ensemble"(%x0, %x1, %x2, %x3, %x4) {mode = -2} : (tensor<7x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<8xi64>, tensor<6x1xf32>) -> tensor<7x1xf32>
  return
}
