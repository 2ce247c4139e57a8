// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @axes(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{axes must be different ones of f32[2, 3] in ascending order, got [1, 0]}}
  %0 = "relax.erase_dims"(%x) {axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<?x?xf32>
  return
}

// -----

func.func @kept(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.erase_dims' op result is declared f32[?, 4], but its operands and attributes make it f32[?, 3]}}
  %0 = "relax.erase_dims"(%x) {axes = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @count(%x: tensor<?x?xf32>) {
  // expected-error@+1 {{symbols must be different names for the 2 erased dims of f32[?, ?]}}
  %0 = "relax.match_dims"(%x) {symbols = ["n"]} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  return
}

// -----

func.func @name(%x: tensor<?xf32>) {
  // expected-error@+1 {{'2n' is not a name for a dim}}
  %0 = "relax.match_dims"(%x) {symbols = ["2n"]} : (tensor<?xf32>) -> tensor<?xf32>
  return
}
