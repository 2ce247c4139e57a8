// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Calls of C functions.

// CHECK-LABEL: func.func @scalars(
func.func @scalars(%x0: f32, %x1: i32) {
  // CHECK: "tir.call_extern"(%{{.*}}, %{{.*}}) {function = "ldexpf", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, pure = true, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32, i32) -> f32
  %0 = "tir.call_extern"(%x0, %x1) {function = "ldexpf", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, pure = true, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32, i32) -> f32
  return
}

// CHECK-LABEL: func.func @buffers(
func.func @buffers(%x0: memref<4x8xf32>, %x1: memref<8x4xf32>, %x2: index) {
  // CHECK: "tir.call_extern"(%{{.*}}, %{{.*}}, %{{.*}}) {function = "gemm_4x4", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<4x8xf32>, memref<8x4xf32>, index) -> ()
  "tir.call_extern"(%x0, %x1, %x2) {function = "gemm_4x4", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<4x8xf32>, memref<8x4xf32>, index) -> ()
  return
}

// CHECK-LABEL: func.func @nothing(
func.func @nothing() {
  // CHECK: "tir.call_extern"() {function = "_ticks", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : () -> i64
  %0 = "tir.call_extern"() {function = "_ticks", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : () -> i64
  return
}
