// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --split-input-file | FileCheck %s

// A sum of columns computes elements of its operands where it reads them, and takes what follows element by element.
// CHECK-LABEL: func.func @sum(
// CHECK:         %[[Y:.*]] = call @fused_multiply_reduce_sum_multiply_0(%arg0, %arg1)
// CHECK-NEXT:    return %[[Y]]
func.func @sum(%x: tensor<64x8xf32>, %y: tensor<64x8xf32>) -> tensor<8xf32> {
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.multiply"(%x, %y) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %1 = "relax.reduce_sum"(%0) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %2 = "relax.multiply"(%1, %half) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// Work that is not cheap is stored before the sum.
// CHECK-LABEL: func.func @costly(
// CHECK-NEXT:    %[[E:.*]] = "relax.call_tir"(%arg0) {callee = @exp
// CHECK-NEXT:    "relax.call_tir"(%[[E]]) {callee = @reduce_sum
func.func @costly(%x: tensor<64x8xf32>) -> tensor<8xf32> {
  %0 = "relax.exp"(%x) : (tensor<64x8xf32>) -> tensor<64x8xf32>
  %1 = "relax.reduce_sum"(%0) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

// `x - mean` is computed by both kernels that read it: four passes over memory of the size of x become two.
// CHECK-LABEL: func.func @centered(
// CHECK-NEXT:    %[[M:.*]] = "relax.call_tir"(%arg0) {callee = @reduce_mean
// CHECK-NEXT:    %[[V:.*]] = call @fused_subtract_multiply_reduce_mean(%arg0, %[[M]])
// CHECK-NEXT:    %[[Y:.*]] = call @fused_subtract_multiply_0(%arg0, %[[M]], %[[V]])
// CHECK-NEXT:    return %[[Y]]
func.func @centered(%x: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %0 = "relax.reduce_mean"(%x) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %1 = "relax.subtract"(%x, %0) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  %2 = "relax.multiply"(%1, %1) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %3 = "relax.reduce_mean"(%2) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %4 = "relax.multiply"(%1, %3) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  return %4 : tensor<64x8xf32>
}

// -----

// A map that a contraction reads, or that is a result, is stored: others read it there.
// CHECK-LABEL: func.func @stored(
// CHECK-NEXT:    %[[C:.*]] = "relax.call_tir"(%arg0, %arg1) {callee = @subtract
// CHECK-NEXT:    %[[S:.*]] = "relax.call_tir"(%[[C]]) {callee = @reduce_sum
// CHECK-NEXT:    %[[P:.*]] = "relax.call_tir"(%[[C]], %arg2) {callee = @matmul
// CHECK-NEXT:    return %[[S]], %[[P]]
func.func @stored(%x: tensor<64x8xf32>, %m: tensor<8xf32>, %w: tensor<8x8xf32>) -> (tensor<8xf32>, tensor<64x8xf32>) {
  %0 = "relax.subtract"(%x, %m) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  %1 = "relax.reduce_sum"(%0) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %2 = "relax.matmul"(%0, %w) : (tensor<64x8xf32>, tensor<8x8xf32>) -> tensor<64x8xf32>
  return %1, %2 : tensor<8xf32>, tensor<64x8xf32>
}
// CHECK-LABEL: func.func @returned(
// CHECK-NEXT:    %[[C:.*]] = "relax.call_tir"(%arg0, %arg1) {callee = @subtract
// CHECK-NEXT:    %[[S:.*]] = "relax.call_tir"(%[[C]]) {callee = @reduce_sum
// CHECK-NEXT:    return %[[C]], %[[S]]
func.func @returned(%x: tensor<64x8xf32>, %m: tensor<8xf32>) -> (tensor<64x8xf32>, tensor<8xf32>) {
  %0 = "relax.subtract"(%x, %m) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  %1 = "relax.reduce_sum"(%0) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<64x8xf32>, tensor<8xf32>
}

// -----

// So is one of five large operands, of which three kernels would read more than they do.
// CHECK-LABEL: func.func @many_operands(
// CHECK-NEXT:    %[[Z:.*]] = call @fused_add(%arg0, %arg1, %arg2, %arg3, %arg4)
// CHECK-COUNT-3: "relax.call_tir"(%[[Z]]) {callee = @reduce_
func.func @many_operands(%a: tensor<64x8xf32>, %b: tensor<64x8xf32>, %c: tensor<64x8xf32>, %d: tensor<64x8xf32>, %e: tensor<64x8xf32>) -> (tensor<8xf32>, tensor<64xf32>, tensor<64xf32>) {
  %0 = "relax.add"(%a, %b) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %1 = "relax.add"(%0, %c) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %2 = "relax.add"(%1, %d) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %3 = "relax.add"(%2, %e) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %4 = "relax.reduce_sum"(%3) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %5 = "relax.reduce_max"(%3) {axes = array<i64: 1>} : (tensor<64x8xf32>) -> tensor<64xf32>
  %6 = "relax.reduce_min"(%3) {axes = array<i64: 1>} : (tensor<64x8xf32>) -> tensor<64xf32>
  return %4, %5, %6 : tensor<8xf32>, tensor<64xf32>, tensor<64xf32>
}

// -----

// No tile of either operand is used again where products are summed down columns: it is no contraction. One operand
// that lacks an axis is read again.
// CHECK-DAG: @columns({{.*}}tir.kind = "columns"
// CHECK-DAG: @rows({{.*}}tir.kind = "contraction"
func.func private @columns(%x: tensor<64x8xf32>, %y: tensor<64x8xf32>) -> tensor<8xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x, %y) ({
  ^bb0(%i: index, %k: index, %a: f32, %b: f32, %sum: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %sum, %1 : f32
    "tir.yield"(%2) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {name = "sum", axes = ["spatial", "reduce"], domain = [8, 64], init = [0.0 : f32],
      maps = [affine_map<(i, k) -> (k, i)>, affine_map<(i, k) -> (k, i)>, affine_map<(i, k) -> (i)>],
      operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @rows(%x: tensor<64x8xf32>, %y: tensor<64xf32>) -> tensor<8xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x, %y) ({
  ^bb0(%i: index, %k: index, %a: f32, %b: f32, %sum: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %sum, %1 : f32
    "tir.yield"(%2) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {name = "sum", axes = ["spatial", "reduce"], domain = [8, 64], init = [0.0 : f32],
      maps = [affine_map<(i, k) -> (k, i)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i)>],
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<64x8xf32>, tensor<64xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
