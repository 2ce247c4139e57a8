// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm machine=sm_80 explain=true})' 2>&1 | FileCheck %s

// Each rule that declines says why.

// CHECK:      '@matmul' is scheduled by products
// CHECK-NEXT: attention [nvvm]: not two products and a softmax (reductions=1)
func.func @main(%x: tensor<1x4096xf16>, %w: tensor<4096x4096xf16>) -> tensor<1x4096xf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<1x4096xf16>, tensor<4096x4096xf16>) -> tensor<1x4096xf16>
  return %p : tensor<1x4096xf16>
}

// -----

// CHECK:      '@softmax' is scheduled by warp_rows
// CHECK:      products [nvvm]: no block is a product of two tensors
func.func @main(%x: tensor<64x1000xf32>) -> tensor<64x1000xf32> {
  %p = "relax.softmax"(%x) {axis = -1 : i64} : (tensor<64x1000xf32>) -> tensor<64x1000xf32>
  return %p : tensor<64x1000xf32>
}
