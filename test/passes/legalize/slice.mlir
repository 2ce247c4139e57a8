// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Cutting apart and putting together.

// CHECK:       affine_map<(d0, d1) -> (d0 * 2 + 1, d1 * -3 + 8)>
// CHECK-LABEL: func.func @test_strided_slice
// CHECK:       relax.call_tir{{.*}}callee = @strided_slice
// CHECK:       func.func private @strided_slice
// CHECK:       domain = [3, 3]{{.*}}name = "strided_slice"
func.func @test_strided_slice(%arg0: tensor<8x9xf32>) -> tensor<3x3xf32> {
  %0 = "relax.strided_slice"(%arg0) {axes = array<i64: 0, 1>, begin = array<i64: 1, -1>, end = array<i64: 7, -100>, strides = array<i64: 2, -3>} : (tensor<8x9xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0 - 1, d1)>
// CHECK-LABEL: func.func @test_pad
// CHECK:       relax.call_tir{{.*}}callee = @pad
// CHECK:       func.func private @pad
// CHECK:       domain = [4, 6]{{.*}}name = "pad"{{.*}}outside = [1.500000e+00 : f32]
func.func @test_pad(%arg0: tensor<4x4xf32>) -> tensor<4x6xf32> {
  %0 = "relax.pad"(%arg0) {pads = array<i64: 1, 0, -1, 2>, value = 1.500000e+00 : f64} : (tensor<4x4xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// CHECK-LABEL: func.func @pad_reflect
// CHECK:       relax.call_tir{{.*}}callee = @pad
// CHECK:       func.func private @pad
// CHECK:       arith.subi
// CHECK:       arith.subi
// CHECK:       arith.maxsi
// CHECK:       arith.subi
// CHECK:       arith.subi
// CHECK:       arith.maxsi
// CHECK:       arith.subi
// CHECK:       tensor.extract
// CHECK:       domain = [8]{{.*}}name = "pad"
func.func @pad_reflect(%arg0: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "relax.pad"(%arg0) {mode = "reflect", pads = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @pad_edge
// CHECK:       relax.call_tir{{.*}}callee = @pad
// CHECK:       func.func private @pad
// CHECK:       arith.subi
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       tensor.extract
// CHECK:       domain = [8]{{.*}}name = "pad"
func.func @pad_edge(%arg0: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "relax.pad"(%arg0) {mode = "edge", pads = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK:       affine_map<(d0) -> ((d0 - 2) mod 4)>
// CHECK-LABEL: func.func @pad_wrap
// CHECK:       relax.call_tir{{.*}}callee = @pad
// CHECK:       func.func private @pad
// CHECK:       domain = [8]{{.*}}name = "pad"
func.func @pad_wrap(%arg0: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "relax.pad"(%arg0) {mode = "wrap", pads = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, d1 - 3)>
// CHECK-LABEL: func.func @test_concat
// CHECK:       relax.call_tir{{.*}}callee = @concat
// CHECK:       func.func private @concat
// CHECK:       arith.cmpi slt
// CHECK:       arith.select
// CHECK:       domain = [2, 7]{{.*}}name = "concat"{{.*}}outside = [0.000000e+00 : f32, 0.000000e+00 : f32]
func.func @test_concat(%arg0: tensor<2x3xf32>, %arg1: tensor<2x4xf32>) -> tensor<2x7xf32> {
  %0 = "relax.concat"(%arg0, %arg1) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

// -----

// Many operands are copied one after the other, as vectors (six elements are a vector of four and one of two).
// CHECK-LABEL: func.func @concat_many
// CHECK:       relax.call_tir{{.*}}callee = @concat
// CHECK:       func.func private @concat({{.*}}memref<2x3xf32>, {{.*}}memref<2x3xf32>, {{.*}}memref<2x3xf32>, {{.*}}memref<2x3xf32>, {{.*}}memref<2x3xf32>, {{.*}}memref<10x3xf32>)
// CHECK-COUNT-10: vector.store
func.func @concat_many(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>, %arg2: tensor<2x3xf32>, %arg3: tensor<2x3xf32>, %arg4: tensor<2x3xf32>) -> tensor<10x3xf32> {
  %0 = "relax.concat"(%arg0, %arg1, %arg2, %arg3, %arg4) {axis = 0 : i64, operandSegmentSizes = array<i32: 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<10x3xf32>
  return %0 : tensor<10x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @test_stack
// CHECK:       relax.call_tir{{.*}}callee = @stack
// CHECK:       func.func private @stack
// CHECK:       arith.cmpi slt
// CHECK:       arith.select
// CHECK:       domain = [2, 2, 3]{{.*}}name = "stack"
func.func @test_stack(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<2x2x3xf32> {
  %0 = "relax.stack"(%arg0, %arg1) {axis = 1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2x3xf32>
  return %0 : tensor<2x2x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, d1 + 2)>
// CHECK-LABEL: func.func @test_split
// CHECK:       relax.call_tir{{.*}}callee = @split
// CHECK:       relax.call_tir{{.*}}callee = @split_0
// CHECK:       func.func private @split
// CHECK:       domain = [2, 2]{{.*}}name = "split"
// CHECK:       func.func private @split_0
// CHECK:       domain = [2, 4]{{.*}}name = "split"
func.func @test_split(%arg0: tensor<2x6xf32>) -> (tensor<2x2xf32>, tensor<2x4xf32>) {
  %0:2 = "relax.split"(%arg0) {axis = 1 : i64, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = [2, 4]} : (tensor<2x6xf32>) -> (tensor<2x2xf32>, tensor<2x4xf32>)
  return %0#0, %0#1 : tensor<2x2xf32>, tensor<2x4xf32>
}
