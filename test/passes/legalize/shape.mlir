// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Elements that move: index maps, one block each.

// A reshape costs nothing, and stays.
// CHECK-LABEL: func.func @test_expand_dims
// CHECK:       relax.reshape{{.*}}shape = [1, 2, 3, 4]
func.func @test_expand_dims(%arg0: tensor<2x3x4xf32>) -> tensor<1x2x3x4xf32> {
  %0 = "relax.expand_dims"(%arg0) {axes = array<i64: 0>} : (tensor<2x3x4xf32>) -> tensor<1x2x3x4xf32>
  return %0 : tensor<1x2x3x4xf32>
}

// -----

// CHECK-LABEL: func.func @test_squeeze
// CHECK:       relax.reshape{{.*}}shape = [3]
func.func @test_squeeze(%arg0: tensor<1x3x1xf32>) -> tensor<3xf32> {
  %0 = "relax.squeeze"(%arg0) {axes = array<i64: 0, 2>} : (tensor<1x3x1xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d1, d2, d0)>
// CHECK-LABEL: func.func @test_permute
// CHECK:       relax.call_tir{{.*}}callee = @permute
// CHECK:       func.func private @permute
// CHECK:       domain = [4, 2, 3]{{.*}}name = "permute"
func.func @test_permute(%arg0: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
  %0 = "relax.permute"(%arg0) {axes = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  return %0 : tensor<4x2x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d1, 0)>
// CHECK-LABEL: func.func @test_expand
// CHECK:       relax.call_tir{{.*}}callee = @expand
// CHECK:       func.func private @expand
// CHECK:       domain = [2, 3, 4]{{.*}}name = "expand"
func.func @test_expand(%arg0: tensor<3x1xf32>) -> tensor<2x3x4xf32> {
  %0 = "relax.expand"(%arg0) {shape = [2, 3, 4]} : (tensor<3x1xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, d1 mod 3)>
// CHECK-LABEL: func.func @test_tile
// CHECK:       relax.call_tir{{.*}}callee = @tile
// CHECK:       func.func private @tile
// CHECK:       domain = [2, 6]{{.*}}name = "tile"
func.func @test_tile(%arg0: tensor<2x3xf32>) -> tensor<2x6xf32> {
  %0 = "relax.tile"(%arg0) {repeats = array<i64: 1, 2>} : (tensor<2x3xf32>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, -d1 + 2)>
// CHECK-LABEL: func.func @test_reverse
// CHECK:       relax.call_tir{{.*}}callee = @reverse
// CHECK:       func.func private @reverse
// CHECK:       domain = [2, 3]{{.*}}name = "reverse"
func.func @test_reverse(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "relax.reverse"(%arg0) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, ((d2 mod 2) * 2 + d3 mod 2) * 2 + d1, d2 floordiv 2, d3 floordiv 2)>
// CHECK-LABEL: func.func @test_depth_to_space
// CHECK:       relax.call_tir{{.*}}callee = @depth_to_space
// CHECK:       func.func private @depth_to_space
// CHECK:       domain = [1, 2, 4, 4]{{.*}}name = "depth_to_space"
func.func @test_depth_to_space(%arg0: tensor<1x8x2x2xf32>) -> tensor<1x2x4x4xf32> {
  %0 = "relax.depth_to_space"(%arg0) {block = 2 : i64} : (tensor<1x8x2x2xf32>) -> tensor<1x2x4x4xf32>
  return %0 : tensor<1x2x4x4xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d1 mod 2, d2 * 2 + (d1 floordiv 2) floordiv 2, d3 * 2 + (d1 floordiv 2) mod 2)>
// CHECK-LABEL: func.func @test_space_to_depth
// CHECK:       relax.call_tir{{.*}}callee = @space_to_depth
// CHECK:       func.func private @space_to_depth
// CHECK:       domain = [1, 8, 2, 2]{{.*}}name = "space_to_depth"
func.func @test_space_to_depth(%arg0: tensor<1x2x4x4xf32>) -> tensor<1x8x2x2xf32> {
  %0 = "relax.space_to_depth"(%arg0) {block = 2 : i64} : (tensor<1x2x4x4xf32>) -> tensor<1x8x2x2xf32>
  return %0 : tensor<1x8x2x2xf32>
}

// -----

// CHECK-LABEL: func.func @test_shape_of
// CHECK:       relax.constant
func.func @test_shape_of(%arg0: tensor<2x3x4xf32>) -> tensor<3xi64> {
  %0 = "relax.shape_of"(%arg0) : (tensor<2x3x4xf32>) -> tensor<3xi64>
  return %0 : tensor<3xi64>
}
