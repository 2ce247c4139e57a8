// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm machine=sm_80})' | FileCheck %s

// Queries are in registers before the loops; keys of the next tile are under way while weights are multiplied. The first
// loop has no comparison with the bound of the mask, the second one has.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:  stages = "attention on tensor cores", tile = array<i64: 64, 64>, warps = 4 : i64
// CHECK:       nvgpu.device_async_copy
// CHECK:       nvvm.cp.async.wait.group 0
// CHECK:       nvgpu.ldmatrix
// CHECK:       scf.for
// CHECK:         nvgpu.ldmatrix {{.*}}transpose = false
// CHECK:         nvvm.mma.sync
// CHECK:         gpu.shuffle xor
// CHECK:         ex2.approx.ftz.f32
// CHECK:         nvgpu.ldmatrix {{.*}}transpose = true
// CHECK-NOT:     arith.cmpi sgt
// CHECK:       scf.for
// CHECK:         arith.cmpi sgt
// CHECK-NOT:   gpu.launch
func.func @main(%q: tensor<1x16x1024x64xf16>, %k: tensor<1x4x1024x64xf16>, %v: tensor<1x4x1024x64xf16>) -> tensor<1x16x1024x64xf16> {
  %0 = "relax.attention"(%q, %k, %v) {causal = true} : (tensor<1x16x1024x64xf16>, tensor<1x4x1024x64xf16>, tensor<1x4x1024x64xf16>) -> tensor<1x16x1024x64xf16>
  return %0 : tensor<1x16x1024x64xf16>
}

// -----

// One new token: 16 bytes of a key a thread, and a second launch that puts the parts together.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:  parts = {{[0-9]+}} : i64, rule = "stages", stages = "attention of few rows", threads_of_a_key = 16 : i64
// CHECK:       gpu.launch
// CHECK:         vector.load {{.*}} : memref<{{.*}}xf16>, vector<8xf16>
// CHECK:         gpu.shuffle xor
// CHECK:       gpu.launch
func.func @main(%q: tensor<1x8x1x128xf16>, %k: tensor<1x8x4096x128xf16>, %v: tensor<1x8x4096x128xf16>) -> tensor<1x8x1x128xf16> {
  %0 = "relax.attention"(%q, %k, %v) {causal = false} : (tensor<1x8x1x128xf16>, tensor<1x8x4096x128xf16>, tensor<1x8x4096x128xf16>) -> tensor<1x8x1x128xf16>
  return %0 : tensor<1x8x1x128xf16>
}

// -----

// f32 is multiplied by threads; they meet by shuffles.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:  stages = "attention", tile = array<i64: 64, 32>
// CHECK:       math.fma
// CHECK:       gpu.shuffle xor
func.func @main(%q: tensor<1x8x256x64xf32>, %k: tensor<1x8x256x64xf32>, %v: tensor<1x8x256x64xf32>) -> tensor<1x8x256x64xf32> {
  %0 = "relax.attention"(%q, %k, %v) {causal = false} : (tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>) -> tensor<1x8x256x64xf32>
  return %0 : tensor<1x8x256x64xf32>
}
