// RUN: mirlo-opt %s --pass-pipeline='builtin.module(legalize{target=spirv},annotate-kinds,fuse-ops,fuse-tir,schedule{target=spirv explain=true})' 2>&1 | FileCheck %s

// CHECK:      '@matmul' is scheduled by stages
// CHECK-NEXT: attention [gpu]: not two products and a softmax (reductions=1)
func.func @main(%x: tensor<32x64xf32>, %w: tensor<64x32xf32>) -> tensor<32x32xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<32x64xf32>, tensor<64x32xf32>) -> tensor<32x32xf32>
  return %p : tensor<32x32xf32>
}
