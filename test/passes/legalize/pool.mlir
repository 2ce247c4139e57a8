// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Reductions over windows that read a neutral value outside of the operand.

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2 * 2 + d4 - 1, d3 * 2 + d5 - 1)>
// CHECK-LABEL: func.func @test_max_pool
// CHECK:       relax.call_tir{{.*}}callee = @max_pool
// CHECK:       func.func private @max_pool
// CHECK:       arith.maximumf
// CHECK:       domain = [1, 4, 4, 4, 3, 3]{{.*}}name = "max_pool"{{.*}}outside = [0xFF800000 : f32]
func.func @test_max_pool(%arg0: tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32> {
  %0 = "relax.max_pool"(%arg0) {kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  return %0 : tensor<1x4x4x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2 * 2 + d4, d3 * 2 + d5)>
// CHECK-LABEL: func.func @test_avg_pool
// CHECK:       relax.call_tir{{.*}}callee = @avg_pool
// CHECK:       func.func private @avg_pool
// CHECK:       arith.addf
// CHECK:       domain = [1, 4, 4, 4, 2, 2]{{.*}}name = "avg_pool"
// CHECK:       arith.divf
// CHECK:       domain = [1, 4, 4, 4]{{.*}}name = "mean"
func.func @test_avg_pool(%arg0: tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32> {
  %0 = "relax.avg_pool"(%arg0) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  return %0 : tensor<1x4x4x4xf32>
}

// -----

// The divisor is how much of the window is inside.
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1 + d3 - 1, d2)>
// CHECK-LABEL: func.func @avg_pool_padded
// CHECK:       relax.call_tir{{.*}}callee = @avg_pool
// CHECK:       func.func private @avg_pool
// CHECK:       arith.addf
// CHECK:       domain = [1, 8, 4, 3]{{.*}}name = "avg_pool"{{.*}}outside = [0.000000e+00 : f32]
// CHECK:       arith.subi
// CHECK:       arith.subi
// CHECK:       arith.minsi
// CHECK:       arith.subi
// CHECK:       arith.maxsi
// CHECK:       arith.subi
// CHECK:       arith.index_cast
// CHECK:       arith.sitofp
// CHECK:       arith.divf
// CHECK:       domain = [1, 8, 4]{{.*}}name = "mean"
func.func @avg_pool_padded(%arg0: tensor<1x8x4xf32>) -> tensor<1x8x4xf32> {
  %0 = "relax.avg_pool"(%arg0) {data_layout = "N*C", kernel = array<i64: 3>, padding = array<i64: 1, 1>} : (tensor<1x8x4xf32>) -> tensor<1x8x4xf32>
  return %0 : tensor<1x8x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2 + d4, d3 + d5)>
// CHECK-LABEL: func.func @test_lp_pool
// CHECK:       relax.call_tir{{.*}}callee = @lp_pool
// CHECK:       func.func private @lp_pool
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 4, 7, 7, 2, 2]{{.*}}name = "lp_pool"
// CHECK:       tir.sqrt
// CHECK:       domain = [1, 4, 7, 7]{{.*}}name = "root"
func.func @test_lp_pool(%arg0: tensor<1x4x8x8xf32>) -> tensor<1x4x7x7xf32> {
  %0 = "relax.lp_pool"(%arg0) {kernel = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x7x7xf32>
  return %0 : tensor<1x4x7x7xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2 + d3 - 1)>
// CHECK-LABEL: func.func @test_max_pool_with_indices
// CHECK:       relax.call_tir{{.*}}callee = @max_pool_with_indices
// CHECK:       func.func private @max_pool_with_indices
// CHECK:       arith.addi
// CHECK:       arith.subi
// CHECK:       arith.cmpi sge
// CHECK:       arith.cmpi slt
// CHECK:       arith.andi
// CHECK:       arith.muli
// CHECK:       arith.addi
// CHECK:       arith.muli
// CHECK:       arith.addi
// CHECK:       arith.index_cast
// CHECK:       arith.select
// CHECK:       arith.cmpi sge
// CHECK:       arith.cmpi slt
// CHECK:       arith.cmpf ogt
// CHECK:       arith.cmpf une
// CHECK:       arith.cmpf oeq
// CHECK:       arith.andi
// CHECK:       arith.ori
// CHECK:       arith.ori
// CHECK:       arith.xori
// CHECK:       arith.cmpf ogt
// CHECK:       arith.cmpf une
// CHECK:       arith.cmpf oeq
// CHECK:       arith.andi
// CHECK:       arith.ori
// CHECK:       arith.xori
// CHECK:       arith.andi
// CHECK:       arith.cmpi slt
// CHECK:       arith.andi
// CHECK:       arith.ori
// CHECK:       arith.andi
// CHECK:       arith.select
// CHECK:       arith.select
// CHECK:       domain = [1, 2, 8, 3]{{.*}}name = "max_pool_with_indices"{{.*}}outside = [0xFF800000 : f32]
func.func @test_max_pool_with_indices(%arg0: tensor<1x2x8xf32>) -> (tensor<1x2x8xf32>, tensor<1x2x8xi64>) {
  %0:2 = "relax.max_pool_with_indices"(%arg0) {kernel = array<i64: 3>, padding = array<i64: 1, 1>} : (tensor<1x2x8xf32>) -> (tensor<1x2x8xf32>, tensor<1x2x8xi64>)
  return %0#0, %0#1 : tensor<1x2x8xf32>, tensor<1x2x8xi64>
}
