// RUN: mirlo-opt %s --legalize --fuse-ops --fuse-tir --schedule=machine=avx2 | FileCheck %s

// What is transposed from a concatenation is transposed from one operand at a time: nothing is loaded to be thrown away.

// CHECK-LABEL: func.func private @fused_concat_permute
// CHECK:       scf.for
// CHECK-NOT:   arith.select
// CHECK-COUNT-8: vector.load %{{.*}} : memref<1024xf32>, vector<8xf32>
// CHECK-NOT:   arith.select
// CHECK:       {tir.parallel}
// CHECK:       scf.for
// CHECK-NOT:   arith.select
// CHECK-COUNT-8: vector.load %{{.*}} : memref<2048xf32>, vector<8xf32>
// CHECK-NOT:   arith.select
// CHECK:       {tir.parallel}
func.func @turn(%x: tensor<1x16x64xf32>, %y: tensor<1x32x64xf32>) -> tensor<1x64x48xf32> {
  %0 = "relax.concat"(%x, %y) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (tensor<1x16x64xf32>, tensor<1x32x64xf32>) -> tensor<1x48x64xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 0, 2, 1>} : (tensor<1x48x64xf32>) -> tensor<1x64x48xf32>
  return %1 : tensor<1x64x48xf32>
}
