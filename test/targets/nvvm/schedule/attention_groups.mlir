// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm machine=sm_90a})' | FileCheck %s

// Queries that share keys are rows of one matrix; boxes are 128 rows of queries, and 128 of keys and values, by 128 bytes.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME: slots = 3 : i64, stages = "attention on warpgroups", tile = array<i64: 128, 128>
// CHECK: nvgpu.tma.create.descriptor %{{.*}} {format = "f16"} : memref<*xf16> -> <tensor = memref<1x128x64xf16, 3>, swizzle = swizzle_128b
// CHECK-COUNT-2: nvgpu.tma.create.descriptor %{{.*}} {format = "f16"} : memref<*xf16> -> <tensor = memref<1x128x64xf16, 3>, swizzle = swizzle_128b

// As many blocks as the chip has units: one warpgroup of each copies.
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c132,{{.*}} threads({{.*}}) in (%{{.*}} = %c384,
// CHECK: memref.alloc() : memref<229376xi8, 3>
// CHECK: nvvm.setmaxregister decrease 40
// CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c32768_i32
// CHECK-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, box[%{{.*}}, %{{.*}}, %{{.*}}] :

// Two multiply in turns: scores of a tile of keys while the weights of the one before are multiplied with the values.
// CHECK: nvvm.setmaxregister increase 232
// CHECK: nvvm.barrier.arrive
// CHECK: llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16
// CHECK: llvm.inline_asm {{.*}}wgmma.wait_group.sync.aligned 0;
// CHECK: arith.cmpi sgt
// CHECK: scf.for
// CHECK: scf.for
// CHECK: nvvm.barrier id =
// CHECK: llvm.inline_asm {{.*}}wgmma.mma_async
// CHECK: llvm.inline_asm {{.*}}wgmma.mma_async
// CHECK: nvvm.barrier.arrive
// CHECK: llvm.inline_asm {{.*}}wgmma.wait_group.sync.aligned 1;
// CHECK-NOT: arith.cmpi sgt
// CHECK: llvm.inline_asm {{.*}}@never st.shared.f32
// CHECK: llvm.inline_asm {{.*}}wgmma.wait_group.sync.aligned 0;
// CHECK: vector.store {{.*}} vector<8xf16>
func.func @main(%q: tensor<1x32x1024x128xf16>, %k: tensor<1x8x1024x128xf16>, %v: tensor<1x8x1024x128xf16>) -> tensor<1x32x1024x128xf16> {
  %0 = "relax.attention"(%q, %k, %v) {causal = true} : (tensor<1x32x1024x128xf16>, tensor<1x8x1024x128xf16>, tensor<1x8x1024x128xf16>) -> tensor<1x32x1024x128xf16>
  return %0 : tensor<1x32x1024x128xf16>
}

// -----

// Three warpgroups, where heads are small; bf16.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME: stages = "attention on warpgroups", tile = array<i64: 192, 128>
// CHECK: nvvm.setmaxregister increase 160
// CHECK: llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
func.func @main(%q: tensor<4x16x2304x64xbf16>, %k: tensor<4x16x2304x64xbf16>, %v: tensor<4x16x2304x64xbf16>) -> tensor<4x16x2304x64xbf16> {
  %0 = "relax.attention"(%q, %k, %v) {causal = true} : (tensor<4x16x2304x64xbf16>, tensor<4x16x2304x64xbf16>, tensor<4x16x2304x64xbf16>) -> tensor<4x16x2304x64xbf16>
  return %0 : tensor<4x16x2304x64xbf16>
}
