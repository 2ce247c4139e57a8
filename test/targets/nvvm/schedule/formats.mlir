// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm machine=sm_89+tf32})' | FileCheck %s

// Bytes of which columns lie side by side: four of each of four rows are transposed in registers, then stored as one access.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME: stages = "tensor cores"
// CHECK: vector.store %{{.*}} : memref<{{.*}}xi8, 3>, vector<4xi8>
// CHECK: nvgpu.ldmatrix %{{.*}} {numTiles = 4 : i32, transpose = false} : memref<{{.*}}xi8, 3> -> vector<4x4xi8>
// CHECK: nvvm.mma.sync {{.*}}intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>{{.*}}multiplicandAPtxType = #nvvm.mma_type<u8>, multiplicandBPtxType = #nvvm.mma_type<s8>, shape = #nvvm.shape<m = 16, n = 8, k = 32>
func.func @main(%x: tensor<1024x512xui8>, %w: tensor<512x1024xi8>) -> tensor<1024x1024xi32> {
  %p = "relax.matmul"(%x, %w) {out_dtype = i32} : (tensor<1024x512xui8>, tensor<512x1024xi8>) -> tensor<1024x1024xi32>
  return %p : tensor<1024x1024xi32>
}

// -----

// 8-bit floats are bytes in memory; what the body decodes tells their format.
// CHECK-LABEL: func.func private @matmul(
// CHECK: nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<e5m2>
func.func @main(%x: tensor<1024x512xf8E5M2>, %w: tensor<512x1024xf8E5M2>) -> tensor<1024x1024xf32> {
  %p = "relax.matmul"(%x, %w) {out_dtype = f32} : (tensor<1024x512xf8E5M2>, tensor<512x1024xf8E5M2>) -> tensor<1024x1024xf32>
  return %p : tensor<1024x1024xf32>
}

// -----

// f32 is rounded where that was asked for; columns of four bytes are read one by one.
// CHECK-LABEL: func.func private @matmul(
// CHECK: nvgpu.device_async_copy
// CHECK: nvgpu.ldmatrix %{{.*}} -> vector<4x1xf32>
// CHECK: nvvm.convert.float.to.tf32 %{{.*}} {rnd = #nvvm.fp_rnd_mode<rna>}
// CHECK: memref.load %{{.*}} : memref<{{.*}}xf32, 3>
// CHECK: nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<tf32>
func.func @main(%x: tensor<1024x512xf32>, %w: tensor<512x1024xf32>) -> tensor<1024x1024xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<1024x512xf32>, tensor<512x1024xf32>) -> tensor<1024x1024xf32>
  return %p : tensor<1024x1024xf32>
}
