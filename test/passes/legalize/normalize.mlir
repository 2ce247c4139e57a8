// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Two-pass statistics, then one elementwise block.

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_layer_norm
// CHECK:       relax.call_tir{{.*}}callee = @layer_norm
// CHECK:       func.func private @layer_norm
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "sum"
// CHECK:       arith.divf
// CHECK:       domain = [4]{{.*}}name = "mean"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "squares"
// CHECK:       arith.divf
// CHECK:       arith.addf
// CHECK:       tir.sqrt
// CHECK:       arith.divf
// CHECK:       domain = [4]{{.*}}name = "inverse_deviation"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "layer_norm"
func.func @test_layer_norm(%arg0: tensor<4x16xf32>, %arg1: tensor<16xf32>, %arg2: tensor<16xf32>) -> tensor<4x16xf32> {
  %0 = "relax.layer_norm"(%arg0, %arg1, %arg2) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<4x16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// CHECK-LABEL: func.func @layer_norm_plain
// CHECK:       relax.call_tir{{.*}}callee = @layer_norm
// CHECK:       func.func private @layer_norm
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "sum"
// CHECK:       arith.divf
// CHECK:       domain = [2]{{.*}}name = "mean"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "squares"
// CHECK:       arith.divf
// CHECK:       arith.addf
// CHECK:       tir.sqrt
// CHECK:       arith.divf
// CHECK:       domain = [2]{{.*}}name = "inverse_deviation"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       domain = [2, 3, 4]{{.*}}name = "layer_norm"
func.func @layer_norm_plain(%arg0: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = "relax.layer_norm"(%arg0) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_rms_norm
// CHECK:       relax.call_tir{{.*}}callee = @rms_norm
// CHECK:       func.func private @rms_norm
// CHECK:       arith.extf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "squares"
// CHECK:       arith.divf
// CHECK:       arith.addf
// CHECK:       tir.sqrt
// CHECK:       arith.divf
// CHECK:       domain = [4]{{.*}}name = "inverse_root_mean"
// CHECK:       arith.extf
// CHECK:       arith.mulf
// CHECK:       arith.extf
// CHECK:       arith.mulf
// CHECK:       arith.truncf
// CHECK:       domain = [4, 16]{{.*}}name = "rms_norm"
func.func @test_rms_norm(%arg0: tensor<4x16xf16>, %arg1: tensor<16xf16>) -> tensor<4x16xf16> {
  %0 = "relax.rms_norm"(%arg0, %arg1) : (tensor<4x16xf16>, tensor<16xf16>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}

// -----

// The factor is worked out once per channel.
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d1)>
// CHECK-LABEL: func.func @test_batch_norm
// CHECK:       relax.call_tir{{.*}}callee = @batch_norm
// CHECK:       func.func private @batch_norm
// CHECK:       arith.addf
// CHECK:       tir.sqrt
// CHECK:       arith.divf
// CHECK:       domain = [3]{{.*}}name = "factor"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 3, 4, 4]{{.*}}name = "batch_norm"
func.func @test_batch_norm(%arg0: tensor<1x3x4x4xf32>, %arg1: tensor<3xf32>, %arg2: tensor<3xf32>, %arg3: tensor<3xf32>, %arg4: tensor<3xf32>) -> tensor<1x3x4x4xf32> {
  %0 = "relax.batch_norm"(%arg0, %arg1, %arg2, %arg3, %arg4) : (tensor<1x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<1x3x4x4xf32>
  return %0 : tensor<1x3x4x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d1)>
// CHECK-LABEL: func.func @test_instance_norm
// CHECK:       relax.call_tir{{.*}}callee = @instance_norm
// CHECK:       func.func private @instance_norm
// CHECK:       arith.addf
// CHECK:       domain = [1, 3, 4, 4]{{.*}}name = "sum"
// CHECK:       arith.divf
// CHECK:       domain = [1, 3]{{.*}}name = "mean"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 3, 4, 4]{{.*}}name = "squares"
// CHECK:       arith.divf
// CHECK:       arith.addf
// CHECK:       tir.sqrt
// CHECK:       arith.divf
// CHECK:       domain = [1, 3]{{.*}}name = "inverse_deviation"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 3, 4, 4]{{.*}}name = "instance_norm"
func.func @test_instance_norm(%arg0: tensor<1x3x4x4xf32>, %arg1: tensor<3xf32>, %arg2: tensor<3xf32>) -> tensor<1x3x4x4xf32> {
  %0 = "relax.instance_norm"(%arg0, %arg1, %arg2) : (tensor<1x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<1x3x4x4xf32>
  return %0 : tensor<1x3x4x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 * 3 + d2, d3, d4)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 3)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d1)>
// CHECK-LABEL: func.func @test_group_norm
// CHECK:       relax.call_tir{{.*}}callee = @group_norm
// CHECK:       func.func private @group_norm
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 3, 4, 4]{{.*}}name = "sum"
// CHECK:       arith.divf
// CHECK:       domain = [1, 2]{{.*}}name = "mean"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 3, 4, 4]{{.*}}name = "squares"
// CHECK:       arith.divf
// CHECK:       arith.addf
// CHECK:       tir.sqrt
// CHECK:       arith.divf
// CHECK:       domain = [1, 2]{{.*}}name = "inverse_deviation"
// CHECK:       arith.subf
// CHECK:       arith.mulf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 6, 4, 4]{{.*}}name = "group_norm"
func.func @test_group_norm(%arg0: tensor<1x6x4x4xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6xf32>) -> tensor<1x6x4x4xf32> {
  %0 = "relax.group_norm"(%arg0, %arg1, %arg2) {groups = 2 : i64} : (tensor<1x6x4x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<1x6x4x4xf32>
  return %0 : tensor<1x6x4x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 + d4 - 1, d2, d3)>
// CHECK-LABEL: func.func @test_lrn
// CHECK:       relax.call_tir{{.*}}callee = @lrn
// CHECK:       func.func private @lrn
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 6, 4, 4, 3]{{.*}}name = "squares"{{.*}}outside = [0.000000e+00 : f32]
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       tir.pow
// CHECK:       arith.divf
// CHECK:       domain = [1, 6, 4, 4]{{.*}}name = "lrn"
func.func @test_lrn(%arg0: tensor<1x6x4x4xf32>) -> tensor<1x6x4x4xf32> {
  %0 = "relax.lrn"(%arg0) {size = 3 : i64} : (tensor<1x6x4x4xf32>) -> tensor<1x6x4x4xf32>
  return %0 : tensor<1x6x4x4xf32>
}

// -----

// CHECK-LABEL: func.func @test_lp_normalize
// CHECK:       relax.call_tir{{.*}}callee = @lp_normalize
// CHECK:       func.func private @lp_normalize
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "powers"
// CHECK:       tir.sqrt
// CHECK:       arith.cmpf oeq
// CHECK:       arith.select
// CHECK:       arith.divf
// CHECK:       domain = [4, 16]{{.*}}name = "lp_normalize"
func.func @test_lp_normalize(%arg0: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = "relax.lp_normalize"(%arg0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}
