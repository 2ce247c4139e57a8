// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @count_ngrams_1(%x0: tensor<2x9xi1>, %x1: tensor<3x2xi64>) {
  // expected-error@+1 {{'relax.count_ngrams' op operand must be integer or unsigned integer, got bool}}
  %0 = "relax.count_ngrams"(%x0, %x1) {skips = 1} : (tensor<2x9xi1>, tensor<3x2xi64>) -> tensor<2x3xi64>
  return
}

// -----

func.func @count_ngrams_2(%x0: tensor<9xi64>, %x1: tensor<3x2xi64>) {
  // expected-error@+1 {{'relax.count_ngrams' op operand must have rank 2, got i64[9]}}
  %0 = "relax.count_ngrams"(%x0, %x1) {skips = 1} : (tensor<9xi64>, tensor<3x2xi64>) -> tensor<2x3xi64>
  return
}

// -----

func.func @count_ngrams_3(%x0: tensor<2x9xi64>, %x1: tensor<i64>) {
  // expected-error@+1 {{'relax.count_ngrams' op grams must have rank 2, got i64[]}}
  %0 = "relax.count_ngrams"(%x0, %x1) {skips = 100} : (tensor<2x9xi64>, tensor<i64>) -> tensor<2x3xi64>
  return
}

// -----

func.func @count_ngrams_4(%x0: tensor<2x9xi64>, %x1: tensor<3x2xi64>) {
  // expected-error@+1 {{'relax.count_ngrams' op skips must not be negative, got -1}}
  %0 = "relax.count_ngrams"(%x0, %x1) {skips = -1} : (tensor<2x9xi64>, tensor<3x2xi64>) -> tensor<2x3xi64>
  return
}
