// RUN: mirlo-opt %s --legalize --schedule=machine=avx512 | FileCheck %s

// Two lines of the cache by two are a block, of which one diagonal comes before the other.

// CHECK-LABEL: func.func private @permute
// CHECK:       scf.for %[[ROWS:[a-z0-9]+]] = %c0{{.*}} to %c3{{.*}} step %c1
// CHECK:         scf.for %[[COLUMNS:[a-z0-9]+]] = %c0{{.*}} to %c2{{.*}} step %c1
// CHECK:           scf.for %[[DIAGONAL:[a-z0-9]+]] = %c0{{.*}} to %c2{{.*}} step %c1
// CHECK:             scf.for %[[ALONG:[a-z0-9]+]] = %c0{{.*}} to %c2{{.*}} step %c1
// CHECK:               %[[SUM:[0-9]+]] = arith.addi %[[DIAGONAL]], %[[ALONG]]
// CHECK:               %[[ACROSS:[0-9]+]] = arith.remui %[[SUM]], %c2
// CHECK:               %[[LINES:[0-9]+]] = arith.muli %[[ACROSS]], %c16
// CHECK:               %[[BLOCK:[0-9]+]] = arith.muli %[[ROWS]], %c32
// CHECK:               arith.addi %[[LINES]], %[[BLOCK]]
// CHECK-COUNT-16:      vector.load %{{.*}} : memref<6144xf32>, vector<16xf32>
// CHECK-COUNT-16:      vector.store %{{.*}} : memref<6144xf32>, vector<16xf32>
// CHECK:         } {tir.parallel}
// CHECK-NEXT:  } {tir.parallel}
func.func @blocks(%x: tensor<64x96xf32>) -> tensor<96x64xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<64x96xf32>) -> tensor<96x64xf32>
  return %0 : tensor<96x64xf32>
}

// Where rows of the output share few sets of the first cache, blocks are of four lines along them.

// CHECK-LABEL: func.func private @permute_0
// CHECK:       scf.for %{{.*}} to %c3{{.*}} step %c1
// CHECK:         scf.for %{{.*}} to %c8{{.*}} step %c1
// CHECK:           scf.for %{{.*}} to %c2{{.*}} step %c1
// CHECK:             scf.for %{{.*}} to %c4{{.*}} step %c1
func.func @crowded(%x: tensor<512x96xf32>) -> tensor<96x512xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<512x96xf32>) -> tensor<96x512xf32>
  return %0 : tensor<96x512xf32>
}

// Tiles of narrow elements are several squares side by side; those that share lines follow each other.

// CHECK-LABEL: func.func private @permute_1
// CHECK-SAME:    transposed_columns = 32 : i64, transposed_rows = 16 : i64
// CHECK-COUNT-32:      vector.load %{{.*}} : memref<8192xf16>, vector<16xf16>
// CHECK-COUNT-16:      vector.store %{{.*}} : memref<8192xf16>, vector<32xf16>
func.func @half(%x: tensor<128x64xf16>) -> tensor<64x128xf16> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<128x64xf16>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// Where all rows of the output have the same set of the first cache, tiles have half as many rows.

// CHECK-LABEL: func.func private @permute_2
// CHECK:       scf.for %{{.*}} to %c3{{.*}} step %c1
// CHECK:         scf.for %{{.*}} to %c16{{.*}} step %c1
// CHECK:           scf.for %{{.*}} to %c2{{.*}} step %c1
// CHECK:             scf.for %{{.*}} to %c8{{.*}} step %c1
// CHECK-COUNT-16:      vector.load %{{.*}} : memref<98304xf32>, vector<8xf32>
// CHECK-COUNT-8:       vector.store %{{.*}} : memref<98304xf32>, vector<16xf32>
// CHECK-NOT:           vector.store
// CHECK:       return
func.func @one_set(%x: tensor<2048x48xf32>) -> tensor<48x2048xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<2048x48xf32>) -> tensor<48x2048xf32>
  return %0 : tensor<48x2048xf32>
}

// What does not fit in the caches is walked along the output, two rows of tiles at a time; lines that are written whole do
// not go through the caches, where the output begins with one.

// CHECK-LABEL: func.func private @permute_3
// CHECK:       scf.for %{{.*}} to %c63{{.*}} step %c1
// CHECK:         scf.for %{{.*}} to %c125{{.*}} step %c1
// CHECK-COUNT-16:  vector.load %{{.*}} : memref<4000000xf32>, vector<16xf32>
// CHECK:           scf.if
// CHECK-COUNT-16:    vector.store {{.*}} {alignment = 64 : i64, nontemporal = true} : memref<4000000xf32>, vector<16xf32>
// CHECK:           else
// CHECK-COUNT-16:    vector.store %{{[^{]*}} : memref<4000000xf32>, vector<16xf32>
// CHECK:         } {tir.parallel}
func.func @large(%x: tensor<2000x2000xf32>) -> tensor<2000x2000xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<2000x2000xf32>) -> tensor<2000x2000xf32>
  return %0 : tensor<2000x2000xf32>
}
