// RUN: mirlo-opt %s --pass-pipeline='builtin.module(legalize,annotate-kinds,fuse-ops,fuse-tir,schedule{machine=avx512})' --split-input-file | FileCheck %s

// All sums of a tile live in vectors through the loop over k: 2 rows of 32 columns. What follows the product is computed
// on them before they are stored; no element is touched twice.
// CHECK-LABEL: func.func private @fused_matmul_add_relu(
// CHECK-SAME: tir.schedule = {cycles = {{[0-9]+}} : i64, depth = 20 : i64, dot = false, lanes = 16 : i64, packed = false, padded = false, rule = "contraction", tile = array<i64: 2, 32>}
// CHECK: %[[SUMS:.*]]:4 = scf.for %[[K:.*]] = %c0 to %c20 step %c1 iter_args(
// CHECK-NEXT: %[[AT:.*]] = arith.muli %[[K]], %c32
// CHECK-NEXT: %[[X0:.*]] = memref.load %{{.*}}[%[[K]]] : memref<40xf32>
// CHECK-NEXT: %[[W0:.*]] = vector.load %{{.*}}[%[[AT]]] : memref<640xf32>, vector<16xf32>
// CHECK-NEXT: %[[V0:.*]] = vector.broadcast %[[X0]] : f32 to vector<16xf32>
// CHECK-NEXT: vector.fma %[[V0]], %[[W0]], %{{.*}} : vector<16xf32>
// CHECK-NEXT: %[[AT16:.*]] = arith.addi %[[AT]], %c16
// CHECK-NEXT: %[[W1:.*]] = vector.load %{{.*}}[%[[AT16]]] : memref<640xf32>, vector<16xf32>
// CHECK-NEXT: vector.fma %[[V0]], %[[W1]], %{{.*}} : vector<16xf32>
// CHECK: vector.fma %{{.*}}, %[[W0]], %{{.*}} : vector<16xf32>
// CHECK-NEXT: vector.fma %{{.*}}, %[[W1]], %{{.*}} : vector<16xf32>
// CHECK-NEXT: scf.yield
// CHECK: %[[BIAS:.*]] = vector.load %arg2[%c0]
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[SUMS]]#0, %[[BIAS]]
// CHECK: %[[RELU:.*]] = arith.maximumf %[[SUM]]
// CHECK-NEXT: vector.store %[[RELU]], %{{.*}}[%c0] : memref<64xf32>, vector<16xf32>
// CHECK-NOT: scf.for
// CHECK: return
func.func @main(%x: tensor<2x20xf32>, %w: tensor<20x32xf32>, %b: tensor<32xf32>) -> tensor<2x32xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<2x20xf32>, tensor<20x32xf32>) -> tensor<2x32xf32>
  %1 = "relax.add"(%0, %b) : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %2 = "relax.relu"(%1) : (tensor<2x32xf32>) -> tensor<2x32xf32>
  return %2 : tensor<2x32xf32>
}

// -----

// The columns of a larger operand are copied, panel by panel, to where their vectors lie next to each other; the tiles of
// rows share a panel, the threads the panels. Columns that fill no vector are masked.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME: packed = true
// CHECK: memref.view %arg3
// CHECK: scf.for %[[J:.*]] = %{{.*}} to %c16{{.*}} step
// CHECK: arith.muli %[[J]], %c32
// CHECK: %[[FULL:.*]] = arith.cmpi sle, %{{.*}}, %c489
// CHECK: scf.if %[[FULL]] {
// CHECK: scf.for %{{.*}} = %{{.*}} to %c300{{.*}} step
// CHECK-COUNT-2: vector.load %{{.*}} : memref<147000xf32>, vector<16xf32>
// CHECK: } else {
// CHECK: scf.for %{{.*}} = %{{.*}} to %c300{{.*}} step
// CHECK-COUNT-2: vector.maskedload %{{.*}} : memref<147000xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
// CHECK: %[[WHOLE:.*]] = arith.cmpi slt, %{{.*}}, %c480
// CHECK: scf.if %[[WHOLE]] {
// CHECK: scf.for %{{.*}} = %c0 to %c300 step %c1 iter_args
// CHECK: vector.store %{{.*}} : memref<34300xf32>, vector<16xf32>
// CHECK: } else {
// CHECK: scf.for %{{.*}} = %c0 to %c300 step %c1 iter_args
// CHECK: vector.maskedstore %{{.*}} : memref<34300xf32>, vector<16xi1>, vector<16xf32>
// CHECK: } {tir.parallel}
func.func @main(%x: tensor<70x300xf32>, %w: tensor<300x490xf32>) -> tensor<70x490xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<70x300xf32>, tensor<300x490xf32>) -> tensor<70x490xf32>
  return %0 : tensor<70x490xf32>
}

// -----

// A vector times a matrix that is stored by rows of the result: the lanes run along the sum, and
// those of eight sums are added up together.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME: dot = true
// CHECK: scf.for %{{.*}} = %{{.*}} to %c2048{{.*}} step %c16 iter_args
// CHECK-COUNT-8: vector.fma
// CHECK-COUNT-16: vector.shuffle
// CHECK: vector.store
// CHECK-NOT: vector.reduction
func.func @main(%x: tensor<1x2048xf32>, %w: tensor<40x2048xf32>) -> tensor<1x40xf32> {
  %0 = "relax.matmul"(%x, %w) {transpose_rhs = true} : (tensor<1x2048xf32>, tensor<40x2048xf32>) -> tensor<1x40xf32>
  return %0 : tensor<1x40xf32>
}

// -----

// If the sum is short, columns are read one after the other, in the order of memory, and the sums of sixteen of them are
// added up together.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME: dot = true
// CHECK: scf.for %{{.*}} = %{{.*}} to %c16{{.*}} step %c1{{.*}} {
// CHECK-COUNT-4: vector.fma
// CHECK: vector.store %{{.*}} : memref<256xf32>, vector<16xf32>
// CHECK-COUNT-30: vector.shuffle
// CHECK-NOT: vector.reduction
func.func @main(%x: tensor<1x64xf32>, %w: tensor<40x64xf32>) -> tensor<1x40xf32> {
  %0 = "relax.matmul"(%x, %w) {transpose_rhs = true} : (tensor<1x64xf32>, tensor<40x64xf32>) -> tensor<1x40xf32>
  return %0 : tensor<1x40xf32>
}

// -----

// Batch and sequence are one axis of rows, also with a block behind the product that does not use their indices.
// CHECK-LABEL: func.func private @fused_matmul_relu(
// CHECK-SAME: tile = array<i64: 12, 32>
func.func @main(%x: tensor<4x3x20xf32>, %w: tensor<20x32xf32>) -> tensor<4x3x32xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<4x3x20xf32>, tensor<20x32xf32>) -> tensor<4x3x32xf32>
  %1 = "relax.relu"(%0) : (tensor<4x3x32xf32>) -> tensor<4x3x32xf32>
  return %1 : tensor<4x3x32xf32>
}

// -----

// An epilogue of many operations is a loop over the rows of the tile: the accumulators go through memory.
// CHECK-LABEL: func.func private @fused_matmul_silu(
// CHECK:       memref.alloca() {alignment = 64 : i64} : memref<448xf32>
// CHECK:       scf.for {{.*}} iter_args(
// CHECK-COUNT-28: vector.store {{.*}}, %alloca[
// CHECK:       scf.for
// CHECK-COUNT-2: tir.sigmoid
// CHECK-NOT:   tir.sigmoid
func.func @main(%x: tensor<14x64xf32>, %w: tensor<64x32xf32>) -> tensor<14x32xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<14x64xf32>, tensor<64x32xf32>) -> tensor<14x32xf32>
  %1 = "relax.silu"(%0) : (tensor<14x32xf32>) -> tensor<14x32xf32>
  return %1 : tensor<14x32xf32>
}
