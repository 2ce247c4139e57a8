// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops="widen=true" --fuse-tir --canonicalize | FileCheck %s
// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --fuse-tir --canonicalize | FileCheck %s --check-prefix=APART

// A product reads a constant in its own type, and converts elements where it reads them; its epilogue is fused as ever.
// CHECK-LABEL: func.func @product(
// CHECK-COUNT-1: relax.call_tir
// CHECK-NOT:     relax.call_tir
// CHECK:         return
// APART-LABEL: func.func @product(
// APART:         callee = @cast
// APART:         callee = @{{.*}}matmul
func.func @product(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<16x8xbf16>
  %0 = "relax.cast"(%w) {dtype = f32} : (tensor<16x8xbf16>) -> tensor<16x8xf32>
  %1 = "relax.matmul"(%x, %0) {transpose_rhs = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %2 = "relax.relu"(%1) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %2 : tensor<4x16xf32>
}

// What is no constant is converted once, before. Of several products each converts the constant where it reads it.
// CHECK-LABEL: func.func @computed(
// CHECK:         callee = @cast
// CHECK:         callee = @matmul
// CHECK-NOT:     callee = @cast
// CHECK:         callee = @fused_cast
// CHECK-NOT:     callee = @cast
// CHECK:         callee = @fused_cast
// CHECK:         return
func.func @computed(%x: tensor<4x8xf32>, %v: tensor<8x8xbf16>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %w = "relax.constant"() {param = "v"} : () -> tensor<8x8xbf16>
  %0 = "relax.cast"(%v) {dtype = f32} : (tensor<8x8xbf16>) -> tensor<8x8xf32>
  %1 = "relax.matmul"(%x, %0) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = "relax.cast"(%w) {dtype = f32} : (tensor<8x8xbf16>) -> tensor<8x8xf32>
  %3 = "relax.matmul"(%1, %2) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %4 = "relax.matmul"(%x, %2) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %3, %4 : tensor<4x8xf32>, tensor<4x8xf32>
}

// What else reads the constant converts it for itself; the products do so, too.
// CHECK-LABEL: func.func @other(
// CHECK:         callee = @fused_cast{{.*}}matmul
// CHECK:         callee = @fused_cast{{.*}}relu
// CHECK:         return
func.func @other(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>) {
  %w = "relax.constant"() {param = "u"} : () -> tensor<8x8xbf16>
  %0 = "relax.cast"(%w) {dtype = f32} : (tensor<8x8xbf16>) -> tensor<8x8xf32>
  %1 = "relax.matmul"(%x, %0) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = "relax.relu"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1, %2 : tensor<4x8xf32>, tensor<8x8xf32>
}
