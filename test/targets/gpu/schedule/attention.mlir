// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(legalize{target=spirv},annotate-kinds,fuse-ops,fuse-tir,schedule{target=spirv})' | FileCheck %s

// Scores, weights and the exchange of maxima are in shared memory; no tensor of scores is anywhere.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:  parts = 1 : i64, rule = "stages", stages = "attention", tile = array<i64: 64, 32>
// CHECK-NOT:   memref<{{.*}}256x256
// CHECK:       gpu.launch
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK:             gpu.barrier
// CHECK:             math.fma
// CHECK:           tir.exp
// CHECK:           scf.for
// CHECK:             math.fma
// CHECK:         arith.divf
// CHECK-NOT:   gpu.launch
func.func @main(%q: tensor<1x16x256x64xf32>, %k: tensor<1x4x256x64xf32>, %v: tensor<1x4x256x64xf32>) -> tensor<1x16x256x64xf32> {
  %0 = "relax.attention"(%q, %k, %v) {causal = true} : (tensor<1x16x256x64xf32>, tensor<1x4x256x64xf32>, tensor<1x4x256x64xf32>) -> tensor<1x16x256x64xf32>
  return %0 : tensor<1x16x256x64xf32>
}

// -----

// One row: its keys are divided, and a second launch puts the parts together.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:  parts = {{[0-9]+}} : i64
// CHECK:       gpu.launch
// CHECK:       gpu.launch
func.func @main(%q: tensor<1x1x1x64xf32>, %k: tensor<1x1x2048x64xf32>, %v: tensor<1x1x2048x64xf32>) -> tensor<1x1x1x64xf32> {
  %0 = "relax.attention"(%q, %k, %v) {causal = false} : (tensor<1x1x1x64xf32>, tensor<1x1x2048x64xf32>, tensor<1x1x2048x64xf32>) -> tensor<1x1x1x64xf32>
  return %0 : tensor<1x1x1x64xf32>
}

// -----

// A product with few tiles and long sums.
// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME:  stages = "contraction in 16 parts"
// CHECK:       gpu.launch
// CHECK:       gpu.launch
// CHECK-COUNT-15: arith.addf
// CHECK-NOT:   arith.addf
func.func @main(%x: tensor<32x16384xf32>, %w: tensor<16384x32xf32>) -> tensor<32x32xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<32x16384xf32>, tensor<16384x32xf32>) -> tensor<32x32xf32>
  return %p : tensor<32x32xf32>
}

// -----

// Any number of queries and keys: kernels for one query, and for more. How often each is launched, and among how many
// blocks the keys are divided, are expressions over the sizes.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:  parts = "max(1, min(64, min(4*floordiv(t, 512), floordiv(64, 8*b*floordiv(s + 63, 64)))))"
// CHECK-SAME:  parts_of_one = "max(1, min(64, min(4*floordiv(t, 512), floordiv(64, 8*b))))"
// CHECK-SAME:  tile = array<i64: 64, 32>, tile_of_one = array<i64: 1, 256>
// CHECK-SAME:  tir.symbols = ["t", "s", "b"]
// CHECK-COUNT-4: gpu.launch
// CHECK-NOT:   gpu.launch
!q = tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>
!k = tensor<?x8x?x64xf32, #relax.dims<["b", 8, "t", 64]>>
func.func @main(%q: !q {relax.name = "q"}, %k: !k {relax.name = "k"}, %v: !k {relax.name = "v"}) -> (!q {relax.name = "y"}) {
  %0 = "relax.attention"(%q, %k, %v) {causal = false} : (!q, !k, !k) -> !q
  return %0 : !q
}
