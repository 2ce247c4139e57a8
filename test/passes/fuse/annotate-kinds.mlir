// RUN: mirlo-opt %s --legalize --annotate-kinds | FileCheck %s

// One prim function per kind.
// CHECK-DAG: @add({{.*}}tir.kind = "elementwise"
// CHECK-DAG: @expand({{.*}}tir.kind = "broadcast"
// CHECK-DAG: @permute({{.*}}tir.kind = "injective"
// CHECK-DAG: @gather({{.*}}tir.kind = "injective"
// CHECK-DAG: @reduce_sum({{.*}}tir.kind = "reduce"
// CHECK-DAG: @softmax({{.*}}tir.kind = "row"
// CHECK-DAG: @matmul({{.*}}tir.kind = "contraction"
// CHECK-DAG: @conv({{.*}}tir.kind = "contraction"
// CHECK-DAG: @max_pool({{.*}}tir.kind = "contraction"
// CHECK-DAG: @reduce_max({{.*}}tir.kind = "columns"
func.func @main(%x: tensor<4x8xf32>, %b: tensor<8xf32>, %i: tensor<3xi64>, %image: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) {
  %0 = "relax.add"(%x, %b) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = "relax.expand"(%b) {shape = [4, 8]} : (tensor<8xf32>) -> tensor<4x8xf32>
  %2 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %3 = "relax.gather"(%x, %i) : (tensor<4x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  %4 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %5 = "relax.softmax"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %6 = "relax.matmul"(%x, %2) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %7 = "relax.conv"(%image, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  %8 = "relax.max_pool"(%image) {kernel = array<i64: 2, 2>} : (tensor<1x3x8x8xf32>) -> tensor<1x3x7x7xf32>
  // Down the columns no row is at hand: it is not a row's reduction.
  %9 = "relax.reduce_max"(%x) {axes = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  return
}

// Whoever wrote a kind by hand knows best; loops over buffers are opaque.
// CHECK-DAG: @by_hand({{.*}}tir.kind = "opaque"
// CHECK-DAG: @loops({{.*}}tir.kind = "opaque"
func.func private @by_hand(%x: tensor<4xf32>) -> tensor<4xf32> attributes {tir.prim_func, tir.kind = "opaque"} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {name = "copy", axes = ["spatial"], domain = [4], init = [unit],
      maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @loops(%x: memref<4xf32>, %y: memref<4xf32>) attributes {tir.prim_func} {
  memref.copy %x, %y : memref<4xf32> to memref<4xf32>
  return
}
