// RUN: mirlo-opt %s --pass-pipeline='builtin.module(legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm machine=sm_90a})' | FileCheck %s

// The host describes both factors to the copying engine: boxes of 128 bytes by 128 rows of the first one, and by 64 steps
// of the second one, whose columns lie side by side.
// CHECK-LABEL: func.func private @fused_matmul_add(
// CHECK-SAME: stages = "warpgroups"
// CHECK: nvgpu.tma.create.descriptor %{{.*}} {format = "bf16"} : memref<*xbf16> -> <tensor = memref<128x64xbf16, 3>, swizzle = swizzle_128b
// CHECK: nvgpu.tma.create.descriptor %{{.*}} {format = "bf16"} : memref<*xbf16> -> <tensor = memref<64x64xbf16, 3>, swizzle = swizzle_128b

// As many blocks as the chip has units, in pairs: one warpgroup of each copies, two multiply.
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c132,{{.*}} threads({{.*}}) in (%{{.*}} = %c384,
// CHECK: memref.alloc() : memref<196608xi8, 3>
// CHECK: nvvm.fence.mbarrier.init
// CHECK: nvvm.cluster.wait

// The first warpgroup waits for a slot, and has it filled: its own rows, and its half of the pair's columns.
// CHECK: nvvm.setmaxregister decrease 40
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c49152_i32
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, box[%{{.*}}, %{{.*}}] :
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}} multicast_mask = %{{.*}} :

// The others multiply what is there while the products of the step before may be under way, and free their slot.
// CHECK: nvvm.setmaxregister increase 232
// CHECK: llvm.inline_asm has_side_effects ""
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: nvvm.wgmma.fence.aligned
// CHECK-COUNT-4: nvvm.wgmma.mma_async %{{.*}}, <m = 64, n = 256, k = 16>,
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK-NEXT: nvvm.wgmma.wait.group.sync.aligned 1
// CHECK: nvvm.mapa
// CHECK-NEXT: nvvm.mbarrier.arrive
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// Sums are known behind a fence only, and each is in a register.
// CHECK: %[[KNOWN:.*]] = llvm.inline_asm has_side_effects "fence.acq_rel.cta;"
// CHECK: %[[SUM:.*]] = llvm.extractvalue %[[KNOWN]][0]
// CHECK: arith.truncf %[[SUM]] : f32 to bf16
func.func @main(%x: tensor<2048x1024xbf16>, %w: tensor<1024x4096xbf16>, %b: tensor<4096xbf16>) -> tensor<2048x4096xbf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<2048x1024xbf16>, tensor<1024x4096xbf16>) -> tensor<2048x4096xbf16>
  %s = "relax.add"(%p, %b) : (tensor<2048x4096xbf16>, tensor<4096xbf16>) -> tensor<2048x4096xbf16>
  return %s : tensor<2048x4096xbf16>
}
