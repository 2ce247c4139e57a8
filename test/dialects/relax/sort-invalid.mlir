// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @topk_1(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.topk' op k must be 0 to 4, the size of axis 0 of f32[4], got 5}}
  %0:2 = "relax.topk"(%x) {k = 5 : i64} : (tensor<4xf32>) -> (tensor<5xf32>, tensor<5xi64>)
  return
}

// -----

func.func @topk_2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.topk' op k must be 0 to 4, the size of axis 0 of f32[4], got -1}}
  %0:2 = "relax.topk"(%x) {k = -1 : i64} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi64>)
  return
}

// -----

func.func @topk_3(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.topk' op axis 1 is outside a tensor of rank 1: expected -1 to 0}}
  %0:2 = "relax.topk"(%x) {k = 2 : i64, axis = 1 : i64} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi64>)
  return
}

// -----

func.func @topk_4(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.topk' op needs the attribute 'k', an integer}}
  %0:2 = "relax.topk"(%x) : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi64>)
  return
}

// -----

func.func @topk_5(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.topk' op axis -1 is outside a tensor of rank 0, which has no axes}}
  %0:2 = "relax.topk"(%x) {k = 1 : i64} : (tensor<f32>) -> (tensor<1xf32>, tensor<1xi64>)
  return
}

// -----

func.func @topk_6(%x: tensor<4xi1>) {
  // expected-error@+1 {{'relax.topk' op operand must be floating point, integer or unsigned integer, got bool}}
  %0:2 = "relax.topk"(%x) {k = 1 : i64} : (tensor<4xi1>) -> (tensor<1xi1>, tensor<1xi64>)
  return
}

// -----

func.func @topk_7(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.topk' op result #1 is declared i32[2], but its operands and attributes make it i64[2]}}
  %0:2 = "relax.topk"(%x) {k = 2 : i64} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)
  return
}

// -----

func.func @sort_1(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.sort' op axis -1 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.sort"(%x) : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @sort_2(%x: tensor<4xi1>) {
  // expected-error@+1 {{'relax.sort' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.sort"(%x) : (tensor<4xi1>) -> tensor<4xi1>
  return
}

// -----

func.func @sort_3(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.sort' op axis -2 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.sort"(%x) {axis = -2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @sort_4(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.sort' op result is declared f32[5], but its operands and attributes make it f32[4]}}
  %0 = "relax.sort"(%x) : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @argsort_1(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.argsort' op result is declared i32[4], but its operands and attributes make it i64[4]}}
  %0 = "relax.argsort"(%x) : (tensor<4xf32>) -> tensor<4xi32>
  return
}

// -----

func.func @argsort_2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.argsort' op axis 1 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.argsort"(%x) {axis = 1 : i64} : (tensor<4xf32>) -> tensor<4xi64>
  return
}

// -----

func.func @argsort_3(%x: tensor<4xi1>) {
  // expected-error@+1 {{'relax.argsort' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.argsort"(%x) : (tensor<4xi1>) -> tensor<4xi64>
  return
}

// -----

func.func @argsort_rows_1(%x0: tensor<f32>) {
  // expected-error@+1 {{'relax.argsort_rows' op operand must have rank 2, got f32[]}}
  %0 = "relax.argsort_rows"(%x0) : (tensor<f32>) -> tensor<2xi64>
  return
}
