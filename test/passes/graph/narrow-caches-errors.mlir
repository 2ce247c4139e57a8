// RUN: not mirlo-opt %s --narrow-caches 2>&1 | FileCheck %s

// A cache that is read before it is written, or that is not an output, keeps its type: then none is left.
// CHECK: error: pass 'narrow-caches' failed: no f32 input is a cache that grows in place: bf16 caches need one, as GroupQueryAttention and TensorScatter have
func.func @main(%cache: tensor<1x2x8x4xf32>, %other: tensor<1x2x8x4xf32>, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>)
    -> (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) {
  %0 = "relax.cache_write"(%cache, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %1 = "relax.relu"(%cache) : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  %2 = "relax.cache_write"(%other, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %3 = "relax.add"(%2, %1) : (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %0, %3 : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}
