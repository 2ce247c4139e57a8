// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @random_normal_1(%x0: tensor<3xi8>) {
  // expected-error@+1 {{'relax.random_normal' op seed must have rank 0, got i8[3]}}
  %0 = "relax.random_normal"(%x0) {shape = [4]} : (tensor<3xi8>) -> tensor<4xf32>
  return
}

// -----

func.func @random_normal_2(%x0: tensor<i8>) {
  // expected-error@+1 {{'relax.random_normal' op dtype must be floating point, got u8}}
  %0 = "relax.random_normal"(%x0) {dtype = ui8, shape = [3]} : (tensor<i8>) -> tensor<3xf64>
  return
}
