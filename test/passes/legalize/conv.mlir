// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// One reduction block over the window and the channels of a group; what is outside reads as zero.

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5 - 1, d3 + d6 - 1)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK-LABEL: func.func @test_conv
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 8, 8, 8, 4, 3, 3]{{.*}}name = "conv"{{.*}}outside = [0.000000e+00 : f32, unit]
func.func @test_conv(%arg0: tensor<1x4x8x8xf32>, %arg1: tensor<8x4x3x3xf32>) -> tensor<1x8x8x8xf32> {
  %0 = "relax.conv"(%arg0, %arg1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>, tensor<8x4x3x3xf32>) -> tensor<1x8x8x8xf32>
  return %0 : tensor<1x8x8x8xf32>
}

// -----

// A window that stays inside reads nothing outside.
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 * 2, d3 * 2)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d1)>
// CHECK-LABEL: func.func @conv_with_bias
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 8, 4, 4, 4, 1, 1]{{.*}}name = "conv"
// CHECK:       arith.addf
// CHECK:       domain = [1, 8, 4, 4]{{.*}}name = "bias"
func.func @conv_with_bias(%arg0: tensor<1x4x8x8xf32>, %arg1: tensor<8x4x1x1xf32>, %arg2: tensor<8xf32>) -> tensor<1x8x4x4xf32> {
  %0 = "relax.conv"(%arg0, %arg1, %arg2) {strides = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>, tensor<8x4x1x1xf32>, tensor<8xf32>) -> tensor<1x8x4x4xf32>
  return %0 : tensor<1x8x4x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1 + d5 * 2, d2 + d6 * 2, d4)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d5, d6, d4, d3)>
// CHECK-LABEL: func.func @conv_channels_last
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 4, 4, 8, 4, 3, 3]{{.*}}name = "conv"
func.func @conv_channels_last(%arg0: tensor<1x8x8x4xf32>, %arg1: tensor<3x3x4x8xf32>) -> tensor<1x4x4x8xf32> {
  %0 = "relax.conv"(%arg0, %arg1) {data_layout = "N*C", dilations = array<i64: 2, 2>, kernel_layout = "*IO"} : (tensor<1x8x8x4xf32>, tensor<3x3x4x8xf32>) -> tensor<1x4x4x8xf32>
  return %0 : tensor<1x4x4x8xf32>
}

// -----

// No axis for the channels of a group, as it has one.
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2 + d4, d3 + d5)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, 0, d4, d5)>
// CHECK-LABEL: func.func @conv_depthwise
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 4, 6, 6, 3, 3]{{.*}}name = "conv"
func.func @conv_depthwise(%arg0: tensor<1x4x8x8xf32>, %arg1: tensor<4x1x3x3xf32>) -> tensor<1x4x6x6xf32> {
  %0 = "relax.conv"(%arg0, %arg1) {groups = 4 : i64} : (tensor<1x4x8x8xf32>, tensor<4x1x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0 : tensor<1x4x6x6xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 floordiv 3) * 2 + d4, d2 + d5, d3 + d6)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK-LABEL: func.func @conv_grouped
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 6, 6, 6, 2, 3, 3]{{.*}}name = "conv"
func.func @conv_grouped(%arg0: tensor<1x4x8x8xf32>, %arg1: tensor<6x2x3x3xf32>) -> tensor<1x6x6x6xf32> {
  %0 = "relax.conv"(%arg0, %arg1) {groups = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<6x2x3x3xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5, d3 + d6)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK-LABEL: func.func @conv_of_integers
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.extsi
// CHECK:       arith.extsi
// CHECK:       arith.muli
// CHECK:       arith.addi
// CHECK:       domain = [1, 8, 6, 6, 4, 3, 3]{{.*}}name = "conv"
func.func @conv_of_integers(%arg0: tensor<1x4x8x8xi8>, %arg1: tensor<8x4x3x3xi8>) -> tensor<1x8x6x6xi32> {
  %0 = "relax.conv"(%arg0, %arg1) {out_dtype = i32} : (tensor<1x4x8x8xi8>, tensor<8x4x3x3xi8>) -> tensor<1x8x6x6xi32>
  return %0 : tensor<1x8x6x6xi32>
}

// -----

// Narrow floats are summed in f32.
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5, d3 + d6)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK-LABEL: func.func @conv_f16
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       func.func private @conv
// CHECK:       arith.extf
// CHECK:       arith.extf
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 8, 6, 6, 4, 3, 3]{{.*}}name = "conv"
// CHECK:       arith.truncf
// CHECK:       domain = [1, 8, 6, 6]{{.*}}name = "cast"
func.func @conv_f16(%arg0: tensor<1x4x8x8xf16>, %arg1: tensor<8x4x3x3xf16>) -> tensor<1x8x6x6xf16> {
  %0 = "relax.conv"(%arg0, %arg1) : (tensor<1x4x8x8xf16>, tensor<8x4x3x3xf16>) -> tensor<1x8x6x6xf16>
  return %0 : tensor<1x8x6x6xf16>
}

// -----

// One convolution makes the results of all four phases of the strides, which are then interleaved.
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d1, (d0 floordiv 2) floordiv 2, (d0 floordiv 2) mod 2 + (-d2 + 1) * 2, d0 mod 2 + (-d3 + 1) * 2)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, (d1 * 2 + (d2 + 1) mod 2) * 2 + (d3 + 1) mod 2, (d2 + 1) floordiv 2, (d3 + 1) floordiv 2)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d1)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5 - 1, d3 + d6 - 1)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK-LABEL: func.func @test_conv_transpose
// CHECK:       relax.call_tir{{.*}}callee = @phases
// CHECK:       relax.call_tir{{.*}}callee = @conv
// CHECK:       relax.call_tir{{.*}}callee = @interleave
// CHECK:       func.func private @phases
// CHECK:       domain = [8, 3, 2, 2]{{.*}}name = "phases"{{.*}}outside = [0.000000e+00 : f32]
// CHECK:       func.func private @interleave
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 7, 7]{{.*}}name = "interleave"
// CHECK:       func.func private @conv
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 8, 4, 4, 3, 2, 2]{{.*}}name = "conv"{{.*}}outside = [0.000000e+00 : f32, unit]
func.func @test_conv_transpose(%arg0: tensor<1x3x4x4xf32>, %arg1: tensor<3x2x3x3xf32>, %arg2: tensor<2xf32>) -> tensor<1x2x7x7xf32> {
  %0 = "relax.conv_transpose"(%arg0, %arg1, %arg2) {padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : (tensor<1x3x4x4xf32>, tensor<3x2x3x3xf32>, tensor<2xf32>) -> tensor<1x2x7x7xf32>
  return %0 : tensor<1x2x7x7xf32>
}

// -----

// Strides and dilations: the operand is spread out with zeros, the weight flipped.
// CHECK:       affine_map<(d0, d1, d2) -> (d0, d1, d2 floordiv 2)>
// CHECK:       affine_map<(d0, d1, d2) -> (d1, d0, -d2 + 2)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d2 + d4 * 2 - 4)>
// CHECK:       affine_map<(d0, d1, d2, d3, d4) -> (d1, d3, d4)>
// CHECK-LABEL: func.func @conv_transpose_dilated
// CHECK:       relax.call_tir{{.*}}callee = @conv_transpose
// CHECK:       func.func private @conv_transpose
// CHECK:       arith.floordivsi
// CHECK:       arith.muli
// CHECK:       arith.subi
// CHECK:       arith.cmpi eq
// CHECK:       arith.select
// CHECK:       domain = [1, 2, 9]{{.*}}name = "spread"
// CHECK:       domain = [3, 2, 3]{{.*}}name = "flip"
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 3, 13, 2, 3]{{.*}}name = "conv"{{.*}}outside = [0.000000e+00 : f32, unit]
func.func @conv_transpose_dilated(%arg0: tensor<1x2x5xf32>, %arg1: tensor<2x3x3xf32>) -> tensor<1x3x13xf32> {
  %0 = "relax.conv_transpose"(%arg0, %arg1) {dilations = array<i64: 2>, strides = array<i64: 2>} : (tensor<1x2x5xf32>, tensor<2x3x3xf32>) -> tensor<1x3x13xf32>
  return %0 : tensor<1x3x13xf32>
}
