// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Resizing knows its coordinates while compiling; sampling computes them.

// An index map does where one says it.
// CHECK:       affine_map<(d0, d1, d2, d3) -> (0, d1, d2 floordiv 2, d3 floordiv 2)>
// CHECK-LABEL: func.func @nearest_by_two
// CHECK:       relax.call_tir{{.*}}callee = @resize
// CHECK:       func.func private @resize
// CHECK:       domain = [1, 2, 8, 8]{{.*}}name = "resize"
func.func @nearest_by_two(%arg0: tensor<1x2x4x4xf32>) -> tensor<1x2x8x8xf32> {
  %0 = "relax.resize"(%arg0) {shape = [1, 2, 8, 8]} : (tensor<1x2x4x4xf32>) -> tensor<1x2x8x8xf32>
  return %0 : tensor<1x2x8x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d3, 0)>
// CHECK-LABEL: func.func @nearest_by_table
// CHECK:       relax.constant
// CHECK:       relax.call_tir{{.*}}callee = @resize
// CHECK:       func.func private @resize
// CHECK:       arith.index_cast
// CHECK:       tensor.extract
// CHECK:       domain = [1, 2, 4, 7]{{.*}}name = "resize"
func.func @nearest_by_table(%arg0: tensor<1x2x4x4xf32>) -> tensor<1x2x4x7xf32> {
  %0 = "relax.resize"(%arg0) {shape = [1, 2, 4, 7]} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x7xf32>
  return %0 : tensor<1x2x4x7xf32>
}

// -----

// One axis after the other.
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d2, 0)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d2, 1)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d3, 0)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d3, 1)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>
// CHECK-LABEL: func.func @linear
// CHECK:       relax.constant
// CHECK:       relax.constant
// CHECK:       relax.constant
// CHECK:       relax.constant
// CHECK:       relax.call_tir{{.*}}callee = @resize
// CHECK:       func.func private @resize
// CHECK:       arith.index_cast
// CHECK:       tensor.extract
// CHECK:       arith.mulf
// CHECK:       arith.index_cast
// CHECK:       tensor.extract
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 8, 4]{{.*}}name = "interpolate"
// CHECK:       arith.index_cast
// CHECK:       tensor.extract
// CHECK:       arith.mulf
// CHECK:       arith.index_cast
// CHECK:       tensor.extract
// CHECK:       arith.mulf
// CHECK:       arith.addf
// CHECK:       domain = [1, 2, 8, 8]{{.*}}name = "interpolate"
// CHECK:       domain = [1, 2, 8, 8]{{.*}}name = "resize"
func.func @linear(%arg0: tensor<1x2x4x4xf32>) -> tensor<1x2x8x8xf32> {
  %0 = "relax.resize"(%arg0) {mode = "linear", shape = [1, 2, 8, 8]} : (tensor<1x2x4x4xf32>) -> tensor<1x2x8x8xf32>
  return %0 : tensor<1x2x8x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, 1)>
// CHECK:       affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, 0)>
// CHECK-LABEL: func.func @test_grid_sample
// CHECK:       relax.call_tir{{.*}}callee = @grid_sample
// CHECK:       func.func private @grid_sample
// CHECK:       arith.addf
// CHECK:       arith.mulf
// CHECK:       arith.mulf
// CHECK:       arith.subf
// CHECK:       tir.roundeven
// CHECK:       tir.abs
// CHECK:       arith.cmpf olt
// CHECK:       arith.select
// CHECK:       arith.fptosi
// CHECK:       arith.index_cast
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       arith.cmpi eq
// CHECK:       arith.addf
// CHECK:       arith.mulf
// CHECK:       arith.mulf
// CHECK:       arith.subf
// CHECK:       tir.roundeven
// CHECK:       tir.abs
// CHECK:       arith.cmpf olt
// CHECK:       arith.select
// CHECK:       arith.fptosi
// CHECK:       arith.index_cast
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       arith.cmpi eq
// CHECK:       arith.andi
// CHECK:       tensor.extract
// CHECK:       arith.select
// CHECK:       domain = [1, 2, 3, 3]{{.*}}name = "grid_sample"
func.func @test_grid_sample(%arg0: tensor<1x2x4x4xf32>, %arg1: tensor<1x3x3x2xf32>) -> tensor<1x2x3x3xf32> {
  %0 = "relax.grid_sample"(%arg0, %arg1) {mode = "nearest"} : (tensor<1x2x4x4xf32>, tensor<1x3x3x2xf32>) -> tensor<1x2x3x3xf32>
  return %0 : tensor<1x2x3x3xf32>
}

// -----

// With antialiasing, more elements have a weight: they are added in a loop.
// CHECK-LABEL: func.func @antialiased
// CHECK:       relax.constant{{.*}}tensor<2x8xi32>
// CHECK:       relax.constant{{.*}}tensor<2x8xf32>
// CHECK:       func.func private @resize
// CHECK:       tensor.extract
// CHECK:       domain = [1, 2, 4, 2, 8]{{.*}}name = "interpolate"
func.func @antialiased(%arg0: tensor<1x2x4x8xf32>) -> tensor<1x2x4x2xf32> {
  %0 = "relax.resize"(%arg0) {shape = [1, 2, 4, 2], mode = "linear", antialias = true} : (tensor<1x2x4x8xf32>) -> tensor<1x2x4x2xf32>
  return %0 : tensor<1x2x4x2xf32>
}
