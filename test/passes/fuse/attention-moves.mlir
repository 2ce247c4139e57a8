// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --fuse-tir --canonicalize | FileCheck %s
// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops="widen=true" --fuse-tir --canonicalize | FileCheck %s --check-prefix=WIDEN

// Permutes and slices around attention that leave the innermost dim are read and written on the way.
// CHECK-LABEL: func.func @inside(
// CHECK-COUNT-1: relax.call_tir
// CHECK-NOT:     relax.call_tir
// CHECK:         return
func.func @inside(%qkv: tensor<1x16x6x32xf32>, %v: tensor<1x16x2x32xf32>) -> tensor<1x16x2x32xf32> {
  %q = "relax.strided_slice"(%qkv) {axes = array<i64: 2>, begin = array<i64: 0>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<1x16x6x32xf32>) -> tensor<1x16x2x32xf32>
  %k = "relax.strided_slice"(%qkv) {axes = array<i64: 2>, begin = array<i64: 2>, end = array<i64: 4>, strides = array<i64: 1>} : (tensor<1x16x6x32xf32>) -> tensor<1x16x2x32xf32>
  %0 = "relax.permute"(%q) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x16x2x32xf32>) -> tensor<1x2x16x32xf32>
  %1 = "relax.permute"(%k) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x16x2x32xf32>) -> tensor<1x2x16x32xf32>
  %2 = "relax.permute"(%v) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x16x2x32xf32>) -> tensor<1x2x16x32xf32>
  %3 = "relax.attention"(%0, %1, %2) : (tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>) -> tensor<1x2x16x32xf32>
  %4 = "relax.permute"(%3) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x2x16x32xf32>) -> tensor<1x16x2x32xf32>
  return %4 : tensor<1x16x2x32xf32>
}

// A permute of the innermost dim, one that is used twice, one before a single product: computed on their own.
// CHECK-LABEL: func.func @apart(
// CHECK:         callee = @permute
// CHECK:         callee = @permute
// CHECK:         callee = {{.*}}attention
// CHECK:         callee = @permute
// CHECK:         callee = @matmul
// CHECK:         return
func.func @apart(%q: tensor<1x2x32x16xf32>, %k: tensor<1x16x2x32xf32>, %a: tensor<4x8x16xf32>, %b: tensor<8x16x16xf32>)
    -> (tensor<1x2x16x32xf32>, tensor<8x4x16xf32>) {
  %0 = "relax.permute"(%q) {axes = array<i64: 0, 1, 3, 2>} : (tensor<1x2x32x16xf32>) -> tensor<1x2x16x32xf32>
  %1 = "relax.permute"(%k) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x16x2x32xf32>) -> tensor<1x2x16x32xf32>
  %2 = "relax.attention"(%0, %1, %1) : (tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>) -> tensor<1x2x16x32xf32>
  %3 = "relax.add"(%2, %1) : (tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>) -> tensor<1x2x16x32xf32>
  %4 = "relax.permute"(%a) {axes = array<i64: 1, 0, 2>} : (tensor<4x8x16xf32>) -> tensor<8x4x16xf32>
  %5 = "relax.matmul"(%4, %b) : (tensor<8x4x16xf32>, tensor<8x16x16xf32>) -> tensor<8x4x16xf32>
  return %3, %5 : tensor<1x2x16x32xf32>, tensor<8x4x16xf32>
}

// Conversions to a wider type, with a slice: read on the way if the target says so. One to a narrower type is not.
// WIDEN-LABEL: func.func @widened(
// WIDEN:         callee = @fused{{.*}}cast{{.*}}attention
// WIDEN-NOT:     relax.call_tir
// WIDEN:         return
// CHECK-LABEL: func.func @widened(
// CHECK-COUNT-3: relax.call_tir
// CHECK:         return
func.func @widened(%q: tensor<1x2x16x32xf32>, %k: tensor<1x2x40x32xi8>, %v: tensor<1x2x24x32xbf16>) -> tensor<1x2x16x32xf32> {
  %0 = "relax.strided_slice"(%k) {axes = array<i64: 2>, begin = array<i64: 0>, end = array<i64: 24>, strides = array<i64: 1>} : (tensor<1x2x40x32xi8>) -> tensor<1x2x24x32xi8>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<1x2x24x32xi8>) -> tensor<1x2x24x32xf32>
  %2 = "relax.cast"(%v) {dtype = f32} : (tensor<1x2x24x32xbf16>) -> tensor<1x2x24x32xf32>
  %3 = "relax.attention"(%q, %1, %2) : (tensor<1x2x16x32xf32>, tensor<1x2x24x32xf32>, tensor<1x2x24x32xf32>) -> tensor<1x2x16x32xf32>
  return %3 : tensor<1x2x16x32xf32>
}

// WIDEN-LABEL: func.func @narrowed(
// WIDEN-COUNT-2: relax.call_tir
// WIDEN:         return
func.func @narrowed(%q: tensor<1x2x16x32xbf16>, %k: tensor<1x2x24x32xf32>) -> tensor<1x2x16x32xbf16> {
  %0 = "relax.cast"(%k) {dtype = bf16} : (tensor<1x2x24x32xf32>) -> tensor<1x2x24x32xbf16>
  %1 = "relax.attention"(%q, %0, %0) : (tensor<1x2x16x32xbf16>, tensor<1x2x24x32xbf16>, tensor<1x2x24x32xbf16>) -> tensor<1x2x16x32xbf16>
  return %1 : tensor<1x2x16x32xbf16>
}
