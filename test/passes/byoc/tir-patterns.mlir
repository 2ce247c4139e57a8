// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --verify-diagnostics --pass-pipeline='builtin.module(legalize,fuse-by-pattern{target=tensorizer functions=main explain},fuse-by-pattern{target=convolver functions=window explain},outline-external,verify-calls)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --pass-pipeline='builtin.module(legalize,annotate-kinds,fuse-ops,fuse-tir,fuse-by-pattern{target=tensorizer},outline-external,verify-calls)' | FileCheck %s --check-prefix=FUSED
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --pass-pipeline='builtin.module(legalize,fuse-by-pattern{target=named},outline-external,inline-external,verify-calls)' | FileCheck %s --check-prefix=UNDO

// After legalization a target takes what its instructions compute: products of the right sizes and types, whatever
// operator they come from. The prim functions move along, and those that nobody calls any more are gone.

// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    "relax.call_external"(%arg0, %arg1) {callee = @tensorizer::@tensorizer_0,
// CHECK:         "relax.call_external"({{.*}}) {callee = @tensorizer::@tensorizer_1,
// CHECK:         "relax.call_tir"({{.*}}) {callee = @matmul_
// CHECK:         "relax.call_tir"({{.*}}) {callee = @tanh,
// CHECK-LABEL: func.func @window(
// CHECK-NEXT:    "relax.call_external"(%arg0, %arg1) {callee = @convolver::@convolver_0,
// CHECK-NOT:   func.func private @conv(
// CHECK-NOT:   func.func private @matmul(
// CHECK:       module @tensorizer
// CHECK:         func.func private @tensorizer_product_relu_0(
// CHECK-NEXT:      %[[P:.*]] = "relax.call_tir"(%arg0, %arg1) {callee = @matmul,
// CHECK-NEXT:      "relax.call_tir"(%[[P]]) {callee = @relu,
// CHECK:         func.func private @matmul({{.*}} attributes {tir.prim_func}
// CHECK:         func.func private @relu({{.*}} attributes {tir.prim_func}
// CHECK:         func.func private @tensorizer_product_0(
// CHECK-NEXT:      "relax.call_tir"(%arg0, %arg1) {callee = @einsum,
// CHECK:         func.func private @einsum(
// CHECK:       module @convolver
// CHECK:         func.func private @convolver_window_0(
// CHECK:         func.func private @conv({{.*}} attributes {tir.prim_func}

// With the epilogue fused into the prim function, it is one call.

// FUSED-LABEL: func.func @main(
// FUSED-NEXT:    "relax.call_external"(%arg0, %arg1) {callee = @tensorizer::@tensorizer_0,
// FUSED:       func.func private @tensorizer_product_0(
// FUSED-NEXT:    "relax.call_tir"(%arg0, %arg1) {callee = @fused_matmul_relu,

// UNDO-LABEL: func.func @main(
// UNDO-NEXT:    "relax.call_tir"(%arg0, %arg1) {callee = @matmul,
// UNDO-NOT:    func.func private @named
func.func @main(%x: tensor<16x8xf32>, %y: tensor<8x4xf32>, %z: tensor<4x8xf32>, %v: tensor<16x4xf32>) -> (tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x8xf32>) {
  %0 = "relax.matmul"(%x, %y) : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = "relax.relu"(%0) : (tensor<16x4xf32>) -> tensor<16x4xf32>
  // The operands of an einsum may come in any order: what counts is what the block reads.
  %2 = "relax.einsum"(%y, %x) {equation = "kn,mk->mn", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<8x4xf32>, tensor<16x8xf32>) -> tensor<16x4xf32>
  // expected-remark @below {{product_relu matched 0 deep: block 'matmul' is not elementwise (kind=contraction); tensorizer.product matched 0 deep: axis k must be 8 (size=4)}}
  %3 = "relax.matmul"(%v, %z) : (tensor<16x4xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-remark @below {{its first block does not sum products}}
  %4 = "relax.tanh"(%3) : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %1, %2, %4 : tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x8xf32>
}

func.func @window(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32> {
  %0 = "relax.conv"(%x, %w) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0 : tensor<1x4x6x6xf32>
}
