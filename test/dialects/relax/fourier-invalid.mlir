// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @dft_matrix_1() {
  // expected-error@+1 {{'relax.dft_matrix' op length must be one dim, got []}}
  %0 = "relax.dft_matrix"() {dtype = i4, length = [], shape = [4, 1, 4, 2]} : () -> tensor<4x1x4x2xf32>
  return
}
