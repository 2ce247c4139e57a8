// RUN: mirlo-opt %s --legalize --schedule=machine=avx512 | FileCheck %s

// Runs of four vectors: four that lie together in the operand by eight that do in the output are written out.

// CHECK-LABEL: func.func private @permute
// CHECK:       scf.for %[[HEAD:[a-z0-9]+]] = %c0{{.*}} to %c3{{.*}} step %c1
// CHECK:         scf.for %[[TOKEN:[a-z0-9]+]] = %c0{{.*}} to %c16{{.*}} step %c1
// CHECK-COUNT-128: vector.load %{{.*}} : memref<98304xf32>, vector<16xf32>
// CHECK-NOT:       vector.load
// CHECK:         } {tir.parallel}
// CHECK-NEXT:  } {tir.parallel}
// CHECK-NEXT:  return
func.func @heads(%x: tensor<128x12x64xf32>) -> tensor<12x128x64xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0, 2>} : (tensor<128x12x64xf32>) -> tensor<12x128x64xf32>
  return %0 : tensor<12x128x64xf32>
}

// What is left of both loops goes by itself.

// CHECK-LABEL: func.func private @permute_0
// CHECK:       scf.for %{{.*}} = %c0{{.*}} to %c24{{.*}} step %c1
// CHECK:       } {tir.parallel}
// CHECK:       scf.for %{{.*}} = %c0{{.*}} to %c5{{.*}} step %c1
// CHECK:       } {tir.parallel}
func.func @rest(%x: tensor<197x4x64xf32>) -> tensor<4x197x64xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0, 2>} : (tensor<197x4x64xf32>) -> tensor<4x197x64xf32>
  return %0 : tensor<4x197x64xf32>
}

// What fits in the first cache is copied run by run, and so are long runs and what is far more than the second cache holds.

// CHECK-LABEL: func.func private @permute_1
// CHECK:       scf.for %{{.*}} = %c0{{.*}} to %c4{{.*}} step %c1
// CHECK-LABEL: func.func private @permute_2
// CHECK:       scf.for %{{.*}} = %c0{{.*}} to %c4{{.*}} step %c1
// CHECK-LABEL: func.func private @permute_3
// CHECK:       scf.for %{{.*}} = %c0{{.*}} to %c4{{.*}} step %c1
func.func @others(%x: tensor<8x4x64xf32>, %y: tensor<8x4x4096xf32>, %z: tensor<2000x4x64xf32>)
    -> (tensor<4x8x64xf32>, tensor<4x8x4096xf32>, tensor<4x2000x64xf32>) {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0, 2>} : (tensor<8x4x64xf32>) -> tensor<4x8x64xf32>
  %1 = "relax.permute"(%y) {axes = array<i64: 1, 0, 2>} : (tensor<8x4x4096xf32>) -> tensor<4x8x4096xf32>
  %2 = "relax.permute"(%z) {axes = array<i64: 1, 0, 2>} : (tensor<2000x4x64xf32>) -> tensor<4x2000x64xf32>
  return %0, %1, %2 : tensor<4x8x64xf32>, tensor<4x8x4096xf32>, tensor<4x2000x64xf32>
}
