// RUN: mirlo-opt %s --pass-pipeline='builtin.module(legalize,schedule{machine=avx512})' --split-input-file | FileCheck %s

// Rows of pixels are copied between columns of zeros; rows outside are not there at all, the loop over the window's rows
// skips them. The window's columns and the channels are one loop, because they lie next to each other.
// CHECK-LABEL: func.func private @conv(
// CHECK-SAME: packed = false, padded = true, rule = "contraction", tile = array<i64: 7, 32>
// CHECK: memref.alloca() {{.*}} : memref<1x7x9x8xf32>
// CHECK: vector.store {{.*}} vector<8xf32>
// CHECK: } {tir.parallel}
// CHECK: scf.for %[[Y:.*]] = {{.*}} to %c7
// CHECK: %[[FIRST:.*]] = arith.addi %[[Y]], %c-1
// CHECK: %[[BELOW:.*]] = arith.subi %c0{{.*}}, %[[FIRST]]
// CHECK: %[[BEYOND:.*]] = arith.subi %c7{{.*}}, %[[FIRST]]
// CHECK: %[[LOW:.*]] = arith.maxsi %[[BELOW]], %c0
// CHECK: %[[HIGH:.*]] = arith.minsi %[[BEYOND]], %c3
// CHECK: scf.for %{{.*}} = %[[LOW]] to %[[HIGH]] step %c1 iter_args
// CHECK: scf.for %{{.*}} = %c0 to %c24 step %c1 iter_args
// CHECK-COUNT-14: vector.fma
// CHECK-NOT: vector.fma
// CHECK: return
func.func @main(%x: tensor<1x7x7x8xf32>, %w: tensor<3x3x8x32xf32>) -> tensor<1x7x7x32xf32> {
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"}
    : (tensor<1x7x7x8xf32>, tensor<3x3x8x32xf32>) -> tensor<1x7x7x32xf32>
  return %0 : tensor<1x7x7x32xf32>
}

// -----

// A depthwise convolution: the lanes run along the channels, the window's columns are unrolled, and each vector of pixels
// is loaded once for all columns of the window. Nothing is copied: the tiles at the edges leave out what lies outside.
// CHECK-LABEL: func.func private @conv(
// CHECK-SAME: packed = false, padded = false, rule = "contraction", tile = array<i64: 7, 16>
// CHECK: iter_args
// CHECK-COUNT-7: vector.load %{{.*}} : memref<784xf32>, vector<16xf32>
// CHECK-NOT: vector.load %{{.*}} : memref<784xf32>, vector<16xf32>
// CHECK: scf.yield
func.func @main(%x: tensor<1x7x7x16xf32>, %w: tensor<3x3x1x16xf32>) -> tensor<1x7x7x16xf32> {
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, groups = 16, data_layout = "N*C", kernel_layout = "*IO"}
    : (tensor<1x7x7x16xf32>, tensor<3x3x1x16xf32>) -> tensor<1x7x7x16xf32>
  return %0 : tensor<1x7x7x16xf32>
}

// -----

// A 1x1 convolution is a matrix product: the pixels of the image are one axis of rows.
// CHECK-LABEL: func.func private @conv(
// CHECK-SAME: padded = false, rule = "contraction", tile = array<i64: 14, 32>
// CHECK: scf.for %{{.*}} = %{{.*}} to %c2{{.*}} step
// CHECK: scf.for %{{.*}} = %c0 to %c256 step %c1 iter_args
// CHECK-COUNT-28: vector.fma
// CHECK-NOT: vector.fma
// CHECK: return
func.func @main(%x: tensor<1x2x14x256xf32>, %w: tensor<1x1x256x32xf32>) -> tensor<1x2x14x32xf32> {
  %0 = "relax.conv"(%x, %w) {data_layout = "N*C", kernel_layout = "*IO"}
    : (tensor<1x2x14x256xf32>, tensor<1x1x256x32xf32>) -> tensor<1x2x14x32xf32>
  return %0 : tensor<1x2x14x32xf32>
}
