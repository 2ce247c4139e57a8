// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// One elementwise block each.

// CHECK-LABEL: func.func @test_relu
// CHECK:       relax.call_tir{{.*}}callee = @relu
// CHECK:       func.func private @relu
// CHECK:       arith.maximumf
// CHECK:       domain = [2, 8]{{.*}}name = "relu"
func.func @test_relu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.relu"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_leaky_relu
// CHECK:       relax.call_tir{{.*}}callee = @leaky_relu
// CHECK:       func.func private @leaky_relu
// CHECK:       arith.cmpf oge
// CHECK:       arith.mulf
// CHECK:       arith.select
// CHECK:       domain = [2, 8]{{.*}}name = "leaky_relu"
func.func @test_leaky_relu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.leaky_relu"(%arg0) {alpha = 2.500000e-01 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_elu
// CHECK:       relax.call_tir{{.*}}callee = @elu
// CHECK:       func.func private @elu
// CHECK:       arith.cmpf ogt
// CHECK:       arith.minimumf
// CHECK:       tir.expm1
// CHECK:       arith.mulf
// CHECK:       arith.select
// CHECK:       domain = [2, 8]{{.*}}name = "elu"
func.func @test_elu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.elu"(%arg0) {alpha = 5.000000e-01 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_selu
// CHECK:       relax.call_tir{{.*}}callee = @selu
// CHECK:       func.func private @selu
// CHECK:       arith.cmpf ogt
// CHECK:       arith.minimumf
// CHECK:       tir.expm1
// CHECK:       arith.mulf
// CHECK:       arith.select
// CHECK:       arith.mulf
// CHECK:       domain = [2, 8]{{.*}}name = "selu"
func.func @test_selu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.selu"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_celu
// CHECK:       relax.call_tir{{.*}}callee = @celu
// CHECK:       func.func private @celu
// CHECK:       arith.maximumf
// CHECK:       arith.divf
// CHECK:       arith.minimumf
// CHECK:       tir.expm1
// CHECK:       arith.mulf
// CHECK:       arith.minimumf
// CHECK:       arith.addf
// CHECK:       domain = [2, 8]{{.*}}name = "celu"
func.func @test_celu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.celu"(%arg0) {alpha = 2.000000e+00 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_sigmoid
// CHECK:       relax.call_tir{{.*}}callee = @sigmoid
// CHECK:       func.func private @sigmoid
// CHECK:       tir.sigmoid
// CHECK:       domain = [2, 8]{{.*}}name = "sigmoid"
func.func @test_sigmoid(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.sigmoid"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_hard_sigmoid
// CHECK:       relax.call_tir{{.*}}callee = @hard_sigmoid
// CHECK:       func.func private @hard_sigmoid
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       arith.maximumf
// CHECK:       arith.minimumf
// CHECK:       domain = [2, 8]{{.*}}name = "hard_sigmoid"
func.func @test_hard_sigmoid(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.hard_sigmoid"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_hard_swish
// CHECK:       relax.call_tir{{.*}}callee = @hard_swish
// CHECK:       func.func private @hard_swish
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       arith.maximumf
// CHECK:       arith.minimumf
// CHECK:       arith.mulf
// CHECK:       domain = [2, 8]{{.*}}name = "hard_swish"
func.func @test_hard_swish(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.hard_swish"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_silu
// CHECK:       relax.call_tir{{.*}}callee = @silu
// CHECK:       func.func private @silu
// CHECK:       tir.sigmoid
// CHECK:       arith.mulf
// CHECK:       domain = [2, 8]{{.*}}name = "silu"
func.func @test_silu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.silu"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_mish
// CHECK:       relax.call_tir{{.*}}callee = @mish
// CHECK:       func.func private @mish
// CHECK:       arith.maximumf
// CHECK:       tir.abs
// CHECK:       arith.negf
// CHECK:       tir.exp
// CHECK:       tir.log1p
// CHECK:       arith.addf
// CHECK:       tir.tanh
// CHECK:       arith.mulf
// CHECK:       domain = [2, 8]{{.*}}name = "mish"
func.func @test_mish(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.mish"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_softplus
// CHECK:       relax.call_tir{{.*}}callee = @softplus
// CHECK:       func.func private @softplus
// CHECK:       arith.maximumf
// CHECK:       tir.abs
// CHECK:       arith.negf
// CHECK:       tir.exp
// CHECK:       tir.log1p
// CHECK:       arith.addf
// CHECK:       domain = [2, 8]{{.*}}name = "softplus"
func.func @test_softplus(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.softplus"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_softsign
// CHECK:       relax.call_tir{{.*}}callee = @softsign
// CHECK:       func.func private @softsign
// CHECK:       tir.abs
// CHECK:       arith.addf
// CHECK:       arith.divf
// CHECK:       domain = [2, 8]{{.*}}name = "softsign"
func.func @test_softsign(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.softsign"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_thresholded_relu
// CHECK:       relax.call_tir{{.*}}callee = @thresholded_relu
// CHECK:       func.func private @thresholded_relu
// CHECK:       arith.cmpf ogt
// CHECK:       arith.select
// CHECK:       domain = [2, 8]{{.*}}name = "thresholded_relu"
func.func @test_thresholded_relu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.thresholded_relu"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_shrink
// CHECK:       relax.call_tir{{.*}}callee = @shrink
// CHECK:       func.func private @shrink
// CHECK:       arith.cmpf olt
// CHECK:       arith.addf
// CHECK:       arith.cmpf ogt
// CHECK:       arith.subf
// CHECK:       arith.select
// CHECK:       arith.select
// CHECK:       domain = [2, 8]{{.*}}name = "shrink"
func.func @test_shrink(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.shrink"(%arg0) {bias = 5.000000e-01 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_gelu
// CHECK:       relax.call_tir{{.*}}callee = @gelu
// CHECK:       func.func private @gelu
// CHECK:       arith.maximumf
// CHECK:       tir.abs
// CHECK:       arith.minimumf
// CHECK:       tir.exp2
// CHECK-COUNT-9: tir.fmuladd
// CHECK:       arith.divf
// CHECK:       arith.mulf
// CHECK:       arith.subf
// CHECK:       domain = [2, 8]{{.*}}name = "gelu"
func.func @test_gelu(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.gelu"(%arg0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_clip
// CHECK:       relax.call_tir{{.*}}callee = @clip
// CHECK:       func.func private @clip
// CHECK:       arith.maximumf
// CHECK:       arith.minimumf
// CHECK:       domain = [2, 8]{{.*}}name = "clip"
func.func @test_clip(%arg0: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.clip"(%arg0) {max = 1.000000e+00 : f64, min = -1.000000e+00 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// Narrow floats are computed in f32.
// CHECK-LABEL: func.func @gelu_by_tanh
// CHECK:       relax.call_tir{{.*}}callee = @gelu
// CHECK:       func.func private @gelu
// CHECK:       arith.extf
// CHECK:       arith.mulf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       arith.mulf
// CHECK:       tir.exp2
// CHECK:       arith.addf
// CHECK:       arith.divf
// CHECK:       arith.truncf
// CHECK:       domain = [2, 8]{{.*}}name = "gelu"
func.func @gelu_by_tanh(%arg0: tensor<2x8xf16>) -> tensor<2x8xf16> {
  %0 = "relax.gelu"(%arg0) {approximate = "tanh"} : (tensor<2x8xf16>) -> tensor<2x8xf16>
  return %0 : tensor<2x8xf16>
}

// -----

// The bounds of integers are integers inside of those given.
// CHECK-LABEL: func.func @clip_integers
// CHECK:       relax.call_tir{{.*}}callee = @clip
// CHECK:       func.func private @clip
// CHECK:       arith.maxui
// CHECK:       arith.minui
// CHECK:       domain = [2]{{.*}}name = "clip"
func.func @clip_integers(%arg0: tensor<2xui8>) -> tensor<2xui8> {
  %0 = "relax.clip"(%arg0) {max = 6.500000e+00 : f64, min = -1.500000e+00 : f64} : (tensor<2xui8>) -> tensor<2xui8>
  return %0 : tensor<2xui8>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d1, 0)>
// CHECK-LABEL: func.func @test_prelu
// CHECK:       relax.call_tir{{.*}}callee = @prelu
// CHECK:       func.func private @prelu
// CHECK:       arith.cmpf olt
// CHECK:       arith.mulf
// CHECK:       arith.select
// CHECK:       domain = [2, 3, 4]{{.*}}name = "prelu"
func.func @test_prelu(%arg0: tensor<2x3x4xf32>, %arg1: tensor<3x1xf32>) -> tensor<2x3x4xf32> {
  %0 = "relax.prelu"(%arg0, %arg1) : (tensor<2x3x4xf32>, tensor<3x1xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}
