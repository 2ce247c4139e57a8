// RUN: mirlo-opt %s --split-input-file --legalize=target=default | FileCheck %s

// Matrix products and softmax, which have schedules of their own.

// Heads that share a key are rows of one product.
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d2, d3)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (0, d1, d2, d4)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (0, d1, d3, d4)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (0, d1, d4, d3)>
// CHECK-LABEL: func.func @test_attention
// CHECK:       relax.reshape{{.*}}shape = [1, 2, 6, 8]
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       relax.reshape{{.*}}shape = [1, 4, 3, 5]
// CHECK:       relax.call_tir{{.*}}callee = @attention_weights
// CHECK:       relax.reshape{{.*}}shape = [1, 2, 6, 5]
// CHECK:       relax.call_tir{{.*}}callee = @matmul_0
// CHECK:       relax.reshape{{.*}}shape = [1, 4, 3, 8]
// CHECK:       func.func private @attention_weights
// CHECK:       arith.cmpi sle
// CHECK:       arith.cmpi ne
// CHECK:       arith.mulf
// CHECK:       arith.select
// CHECK:       arith.select
// CHECK:       domain = [1, 4, 3, 5]{{.*}}name = "mask"
// CHECK:       arith.maximumf
// CHECK:       domain = [1, 4, 3, 5]{{.*}}name = "softmax_max"
// CHECK:       arith.cmpf ogt
// CHECK:       arith.select
// CHECK:       domain = [1, 4, 3]{{.*}}name = "softmax_shift"
// CHECK:       arith.subf
// CHECK:       tir.exp
// CHECK:       domain = [1, 4, 3, 5]{{.*}}name = "softmax_exp"
// CHECK:       arith.addf
// CHECK:       domain = [1, 4, 3, 5]{{.*}}name = "softmax_sum"
// CHECK:       arith.cmpf oeq
// CHECK:       arith.select
// CHECK:       domain = [1, 4, 3]{{.*}}name = "softmax_total"
// CHECK:       arith.divf
// CHECK:       domain = [1, 4, 3, 5]{{.*}}name = "softmax"
// CHECK:       func.func private @matmul
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 6, 5, 8]{{.*}}name = "matmul"
// CHECK:       func.func private @matmul_0
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 6, 8, 5]{{.*}}name = "matmul"
func.func @test_attention(%arg0: tensor<1x4x3x8xf32>, %arg1: tensor<1x2x5x8xf32>, %arg2: tensor<1x2x5x8xf32>, %arg3: tensor<3x5xi1>) -> tensor<1x4x3x8xf32> {
  %0 = "relax.attention"(%arg0, %arg1, %arg2, %arg3) {causal = true} : (tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<3x5xi1>) -> tensor<1x4x3x8xf32>
  return %0 : tensor<1x4x3x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d2, d3 mod 4)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3 + 4)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3 - 4)>
// CHECK-LABEL: func.func @test_rotary_embedding
// CHECK:       relax.call_tir{{.*}}callee = @rotary_embedding
// CHECK:       func.func private @rotary_embedding
// CHECK:       arith.mulf
// CHECK:       arith.cmpi slt
// CHECK:       arith.negf
// CHECK:       arith.select
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 3, 8]{{.*}}name = "rotary_embedding"{{.*}}outside = [unit, unit, 0.000000e+00 : f32, 0.000000e+00 : f32, unit]
func.func @test_rotary_embedding(%arg0: tensor<1x2x3x8xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>) -> tensor<1x2x3x8xf32> {
  %0 = "relax.rotary_embedding"(%arg0, %arg1, %arg2) : (tensor<1x2x3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<1x2x3x8xf32>
  return %0 : tensor<1x2x3x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d2, d3 floordiv 2)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3 + 1)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3 - 1)>
// CHECK-LABEL: func.func @rotary_interleaved
// CHECK:       relax.call_tir{{.*}}callee = @rotary_embedding
// CHECK:       func.func private @rotary_embedding
// CHECK:       arith.cmpi slt
// CHECK:       arith.mulf
// CHECK:       arith.floordivsi
// CHECK:       arith.muli
// CHECK:       arith.subi
// CHECK:       arith.cmpi eq
// CHECK:       arith.negf
// CHECK:       arith.select
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       arith.select
// CHECK:       domain = [1, 2, 3, 8]{{.*}}name = "rotary_embedding"{{.*}}outside = [unit, 0.000000e+00 : f32, 0.000000e+00 : f32, 0.000000e+00 : f32, 0.000000e+00 : f32]
func.func @rotary_interleaved(%arg0: tensor<1x2x3x8xf32>, %arg1: tensor<3x2xf32>, %arg2: tensor<3x2xf32>) -> tensor<1x2x3x8xf32> {
  %0 = "relax.rotary_embedding"(%arg0, %arg1, %arg2) {interleaved = true} : (tensor<1x2x3x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<1x2x3x8xf32>
  return %0 : tensor<1x2x3x8xf32>
}

// -----

// Rows of each sequence are copied out of their pages, zero behind the last one.
// CHECK-LABEL: func.func @test_paged_attention
// CHECK:       %[[ROWS:.*]] = "relax.call_tir"(%arg1, %arg2, %arg3) {callee = @paged_rows
// CHECK:       %[[KEYS:.*]] = "relax.reshape"(%[[ROWS]]) {shape = [2, 2, 12, 8]}
// CHECK:       relax.call_tir{{.*}}callee = @matmul
// CHECK:       func.func private @paged_rows
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       arith.cmpi slt
// CHECK:       tensor.extract
// CHECK:       arith.select
// CHECK:       domain = [2, 2, 3, 4, 8]{{.*}}name = "paged_rows"
func.func @test_paged_attention(%query: tensor<2x4x1x8xf32>, %cache: tensor<5x4x2x8xf32>, %table: tensor<2x3xi64>, %lengths: tensor<2xi64>) -> tensor<2x4x1x8xf32> {
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<2x4x1x8xf32>, tensor<5x4x2x8xf32>, tensor<5x4x2x8xf32>, tensor<2x3xi64>, tensor<2xi64>) -> tensor<2x4x1x8xf32>
  return %0 : tensor<2x4x1x8xf32>
}
