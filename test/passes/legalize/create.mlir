// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Tensors from numbers.

// CHECK-LABEL: func.func @test_full
// CHECK:       relax.call_tir{{.*}}callee = @full
// CHECK:       func.func private @full
// CHECK:       domain = [2, 3]{{.*}}name = "full"
func.func @test_full() -> tensor<2x3xf32> {
  %0 = "relax.full"() {dtype = f32, shape = [2, 3], value = 1.500000e+00 : f64} : () -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_arange
// CHECK:       relax.call_tir{{.*}}callee = @arange
// CHECK:       func.func private @arange
// CHECK:       arith.index_cast
// CHECK:       arith.muli
// CHECK:       arith.addi
// CHECK:       domain = [3]{{.*}}name = "arange"
func.func @test_arange() -> tensor<3xi64> {
  %0 = "relax.arange"() {dtype = i64, start = 2.000000e+00 : f64, step = 2.000000e+00 : f64, stop = 8.000000e+00 : f64} : () -> tensor<3xi64>
  return %0 : tensor<3xi64>
}

// -----

// CHECK-LABEL: func.func @arange_of_floats
// CHECK:       relax.call_tir{{.*}}callee = @arange
// CHECK:       func.func private @arange
// CHECK:       arith.index_cast
// CHECK:       arith.sitofp
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       arith.truncf
// CHECK:       domain = [4]{{.*}}name = "arange"
func.func @arange_of_floats() -> tensor<4xf32> {
  %0 = "relax.arange"() {dtype = f32, start = 0.000000e+00 : f64, step = 2.500000e-01 : f64, stop = 1.000000e+00 : f64} : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @test_eye
// CHECK:       relax.call_tir{{.*}}callee = @eye
// CHECK:       func.func private @eye
// CHECK:       arith.addi
// CHECK:       arith.cmpi eq
// CHECK:       arith.select
// CHECK:       domain = [3, 3]{{.*}}name = "eye"
func.func @test_eye() -> tensor<3x3xf32> {
  %0 = "relax.eye"() {dtype = f32, k = 1 : i64, shape = [3, 3]} : () -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_tri
// CHECK:       relax.call_tir{{.*}}callee = @tri
// CHECK:       func.func private @tri
// CHECK:       arith.cmpi sle
// CHECK:       arith.select
// CHECK:       domain = [4, 4]{{.*}}name = "tri"
func.func @test_tri(%arg0: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "relax.tri"(%arg0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// CHECK-LABEL: func.func @test_dft_matrix
// CHECK:       relax.call_tir{{.*}}callee = @dft_matrix
// CHECK:       func.func private @dft_matrix
// CHECK:       arith.floordivsi
// CHECK:       "tir.cos"
// CHECK:       "tir.sin"
// CHECK:       domain = [4, 1, 4, 2]{{.*}}name = "dft_matrix"
func.func @test_dft_matrix() -> tensor<4x1x4x2xf32> {
  %0 = "relax.dft_matrix"() {dtype = f32, length = [4], shape = [4, 1, 4, 2]} : () -> tensor<4x1x4x2xf32>
  return %0 : tensor<4x1x4x2xf32>
}
