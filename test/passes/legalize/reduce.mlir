// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// One reduction block; means and norms finish with an elementwise one.

// CHECK-LABEL: func.func @test_reduce_sum
// CHECK:       relax.call_tir{{.*}}callee = @reduce_sum
// CHECK:       func.func private @reduce_sum
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
func.func @test_reduce_sum(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_sum"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_prod
// CHECK:       relax.call_tir{{.*}}callee = @reduce_prod
// CHECK:       func.func private @reduce_prod
// CHECK:       arith.mulf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_mul"
func.func @test_reduce_prod(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_prod"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_max
// CHECK:       relax.call_tir{{.*}}callee = @reduce_max
// CHECK:       func.func private @reduce_max
// CHECK:       arith.maximumf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_max"
func.func @test_reduce_max(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_max"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_min
// CHECK:       relax.call_tir{{.*}}callee = @reduce_min
// CHECK:       func.func private @reduce_min
// CHECK:       arith.minimumf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_min"
func.func @test_reduce_min(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_min"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_mean
// CHECK:       relax.call_tir{{.*}}callee = @reduce_mean
// CHECK:       func.func private @reduce_mean
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
// CHECK:       arith.divf
// CHECK:       domain = [2, 3]{{.*}}name = "reduce_mean"
func.func @test_reduce_mean(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_mean"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_l1
// CHECK:       relax.call_tir{{.*}}callee = @reduce_l1
// CHECK:       func.func private @reduce_l1
// CHECK:       tir.abs
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
func.func @test_reduce_l1(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_l1"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_l2
// CHECK:       relax.call_tir{{.*}}callee = @reduce_l2
// CHECK:       func.func private @reduce_l2
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
// CHECK:       tir.sqrt
// CHECK:       domain = [2, 3]{{.*}}name = "reduce_l2"
func.func @test_reduce_l2(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_l2"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_sum_square
// CHECK:       relax.call_tir{{.*}}callee = @reduce_sum_square
// CHECK:       func.func private @reduce_sum_square
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
func.func @test_reduce_sum_square(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_sum_square"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_log_sum
// CHECK:       relax.call_tir{{.*}}callee = @reduce_log_sum
// CHECK:       func.func private @reduce_log_sum
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
// CHECK:       tir.log
// CHECK:       domain = [2, 3]{{.*}}name = "reduce_log_sum"
func.func @test_reduce_log_sum(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_log_sum"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_reduce_log_sum_exp
// CHECK:       relax.call_tir{{.*}}callee = @reduce_log_sum_exp
// CHECK:       func.func private @reduce_log_sum_exp
// CHECK:       arith.maximumf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_max"
// CHECK:       tir.isfinite
// CHECK:       arith.select
// CHECK:       domain = [2, 3]{{.*}}name = "shift"
// CHECK:       arith.subf
// CHECK:       tir.exp
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "reduce_add"
// CHECK:       tir.log
// CHECK:       arith.addf
// CHECK:       domain = [2, 3]{{.*}}name = "reduce_log_sum_exp"
func.func @test_reduce_log_sum_exp(%arg0: tensor<2x3x4xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reduce_log_sum_exp"(%arg0) {axes = array<i64: -1>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d3, d1, d4)>
// CHECK-LABEL: func.func @keepdims
// CHECK:       relax.call_tir{{.*}}callee = @reduce_sum
// CHECK:       func.func private @reduce_sum
// CHECK:       arith.addf
// CHECK:       domain = [1, 3, 1, 2, 4]{{.*}}name = "reduce_add"
func.func @keepdims(%arg0: tensor<2x3x4xf32>) -> tensor<1x3x1xf32> {
  %0 = "relax.reduce_sum"(%arg0) {axes = array<i64: 0, 2>, keepdims = true} : (tensor<2x3x4xf32>) -> tensor<1x3x1xf32>
  return %0 : tensor<1x3x1xf32>
}

// -----

// Narrow floats are summed in f32.
// CHECK-LABEL: func.func @sum_of_f16
// CHECK:       relax.call_tir{{.*}}callee = @reduce_sum
// CHECK:       func.func private @reduce_sum
// CHECK:       arith.extf
// CHECK:       arith.addf
// CHECK:       domain = [2, 64]{{.*}}name = "reduce_add"
// CHECK:       arith.truncf
// CHECK:       domain = [2]{{.*}}name = "reduce_sum"
func.func @sum_of_f16(%arg0: tensor<2x64xf16>) -> tensor<2xf16> {
  %0 = "relax.reduce_sum"(%arg0) {axes = array<i64: 1>} : (tensor<2x64xf16>) -> tensor<2xf16>
  return %0 : tensor<2xf16>
}

// -----

// CHECK-LABEL: func.func @test_reduce_any
// CHECK:       relax.call_tir{{.*}}callee = @reduce_any
// CHECK:       func.func private @reduce_any
// CHECK:       arith.cmpi ne
// CHECK:       arith.cmpi ne
// CHECK:       arith.ori
// CHECK:       arith.extui
// CHECK:       domain = [2, 8]{{.*}}name = "reduce_or"
func.func @test_reduce_any(%arg0: tensor<2x8xi1>) -> tensor<2xi1> {
  %0 = "relax.reduce_any"(%arg0) {axes = array<i64: 1>} : (tensor<2x8xi1>) -> tensor<2xi1>
  return %0 : tensor<2xi1>
}

// -----

// CHECK-LABEL: func.func @test_reduce_all
// CHECK:       relax.call_tir{{.*}}callee = @reduce_all
// CHECK:       func.func private @reduce_all
// CHECK:       arith.cmpi ne
// CHECK:       arith.cmpi ne
// CHECK:       arith.andi
// CHECK:       arith.extui
// CHECK:       domain = [2, 8]{{.*}}name = "reduce_and"
func.func @test_reduce_all(%arg0: tensor<2x8xi1>) -> tensor<2xi1> {
  %0 = "relax.reduce_all"(%arg0) {axes = array<i64: 1>} : (tensor<2x8xi1>) -> tensor<2xi1>
  return %0 : tensor<2xi1>
}

// -----

// First the extreme, then the first place that has it.
// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @test_argmax
// CHECK:       relax.call_tir{{.*}}callee = @argmax
// CHECK:       func.func private @argmax
// CHECK:       arith.maxsi
// CHECK:       domain = [2, 1, 8]{{.*}}name = "argmax_value"
// CHECK:       arith.cmpi eq
// CHECK:       arith.index_cast
// CHECK:       arith.select
// CHECK:       arith.minsi
// CHECK:       domain = [2, 1, 8]{{.*}}name = "argmax"
// CHECK:       arith.extsi
// CHECK:       domain = [2, 1]{{.*}}name = "place"
func.func @test_argmax(%arg0: tensor<2x8xi32>) -> tensor<2x1xi64> {
  %0 = "relax.argmax"(%arg0) {axis = 1 : i64} : (tensor<2x8xi32>) -> tensor<2x1xi64>
  return %0 : tensor<2x1xi64>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @test_argmin
// CHECK:       relax.call_tir{{.*}}callee = @argmin
// CHECK:       func.func private @argmin
// CHECK:       arith.minsi
// CHECK:       domain = [2, 1, 8]{{.*}}name = "argmin_value"
// CHECK:       arith.cmpi eq
// CHECK:       arith.index_cast
// CHECK:       arith.select
// CHECK:       arith.maxsi
// CHECK:       domain = [2, 1, 8]{{.*}}name = "argmin"
// CHECK:       arith.extsi
// CHECK:       domain = [2, 1]{{.*}}name = "place"
func.func @test_argmin(%arg0: tensor<2x8xi32>) -> tensor<2x1xi64> {
  %0 = "relax.argmin"(%arg0) {axis = 1 : i64, select_last = true} : (tensor<2x8xi32>) -> tensor<2x1xi64>
  return %0 : tensor<2x1xi64>
}

// -----

// No block says what a running sum is: loops do.
// CHECK-LABEL: func.func @test_cumsum
// CHECK:       relax.call_tir{{.*}}callee = @cumsum
// CHECK:       func.func private @cumsum({{.*}}memref<2x8xf32>, {{.*}}memref<2x8xf32>)
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       arith.addf
func.func @test_cumsum(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.cumsum"(%arg0) {axis = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_cumprod
// CHECK:       relax.call_tir{{.*}}callee = @cumprod
// CHECK:       func.func private @cumprod({{.*}}memref<8xf32>, {{.*}}memref<8xf32>)
// CHECK:       scf.for
// CHECK:       arith.mulf
func.func @test_cumprod(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.cumprod"(%arg0) {axis = 0 : i64, exclusive = true, reverse = true} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
