// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm machine=sm_80})' | FileCheck %s

// 128 tiles on 108 units: most of them are one round, and the sums of the others are divided among all units. The second
// launch makes the parts, the third one adds them up.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME:  stages = "tensor cores, the last round tensor cores in 4 parts"
// CHECK-COUNT-3: gpu.launch
// CHECK-NOT:   gpu.launch
func.func @main(%x: tensor<2048x4096xf16>, %w: tensor<4096x1024xf16>) -> tensor<2048x1024xf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<2048x4096xf16>, tensor<4096x1024xf16>) -> tensor<2048x1024xf16>
  return %p : tensor<2048x1024xf16>
}

// -----

// Many rounds: what the last one leaves is not worth another launch.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME:  stages = "tensor cores"}
// CHECK:       gpu.launch
// CHECK-NOT:   gpu.launch
func.func @main(%x: tensor<4096x4096xf16>, %w: tensor<4096x4096xf16>) -> tensor<4096x4096xf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  return %p : tensor<4096x4096xf16>
}
