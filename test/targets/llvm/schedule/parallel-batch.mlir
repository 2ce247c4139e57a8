// RUN: mirlo-opt %s --pass-pipeline='builtin.module(legalize,annotate-kinds,fuse-ops,fuse-tir,schedule{machine=avx512},lower-loops,outline-parallel{threads=2 work=1})' --split-input-file | FileCheck %s

// The batch is one in most calls: threads divide it together with the loops inside of it. The copy fills the padding in
// the loops over the batch and 16 channels, so that nothing is between these; the tiles follow for 40 rows.
// CHECK-LABEL: func.func private @conv(
// CHECK: %[[CHANNELS:.*]] = arith.muli %{{.*}}, %c16
// CHECK: call @conv_fork(%[[CHANNELS]],
// CHECK: %[[ROWS:.*]] = arith.muli %{{.*}}, %c40
// CHECK: call @conv_fork_0(%[[ROWS]],
!x = tensor<?x16x40x24xf32, #relax.dims<["n", 16, 40, 24]>>
!y = tensor<?x16x40x24xf32, #relax.dims<["n", 16, 40, 24]>>
func.func @main(%x: !x, %w: tensor<16x16x3x3xf32>) -> !y {
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>} : (!x, tensor<16x16x3x3xf32>) -> !y
  return %0 : !y
}

// -----

// Rows of half floats are converted once, in a copy that threads share, where the tiles would convert each element.
// CHECK-LABEL: func.func private @matmul(
// CHECK: call @matmul_fork(
// CHECK: call @matmul_fork_0(
// CHECK: func.func private @matmul_region(
// CHECK: vector.load %{{.*}} : memref<{{[0-9]+}}xf16>, vector<16xf16>
// CHECK: arith.extf %{{.*}} : vector<16xf16> to vector<16xf32>
// CHECK: vector.store %{{.*}} : memref<{{[0-9]+}}xf32>, vector<16xf32>
// CHECK-LABEL: func.func private @matmul_region_0(
// CHECK-NOT: arith.extf %{{.*}} : f16 to f32
!a = tensor<?x64xf16, #relax.dims<["n", 64]>>
!b = tensor<?x32xf16, #relax.dims<["n", 32]>>
func.func @main(%x: !a, %w: tensor<64x32xf16>) -> !b {
  %0 = "relax.matmul"(%x, %w) : (!a, tensor<64x32xf16>) -> !b
  return %0 : !b
}

// -----

// The columns are dynamic and are packed: the panel is inside of the one loop over panels, so that each thread has one.
// CHECK-LABEL: func.func private @conv(
// CHECK: call @conv_fork(
// CHECK-NOT: call @conv_fork_0(
// CHECK: func.func private @conv_region(
// CHECK: %[[PANEL:.*]] = memref.alloca()
// CHECK: scf.for
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[PANEL]]
// CHECK: vector.store %{{.*}}, %[[FLAT]]
!p = tensor<1x64x?x64xf32, #relax.dims<[1, 64, "h", 64]>>
!q = tensor<1x16x?x64xf32, #relax.dims<[1, 16, "h", 64]>>
func.func @main(%x: !p, %w: tensor<16x64x1x1xf32>) -> !q {
  %0 = "relax.conv"(%x, %w) : (!p, tensor<16x64x1x1xf32>) -> !q
  return %0 : !q
}
