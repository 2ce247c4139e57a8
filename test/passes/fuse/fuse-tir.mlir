// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --fuse-tir --split-input-file | FileCheck %s
// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --fuse-tir=inline=false --split-input-file | FileCheck %s --check-prefix=BLOCKS

// An elementwise chain is one block of one prim function; the prim functions that it was made of are gone.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:    "relax.call_tir"(%arg0) {callee = @fused_exp_negative_tanh
// CHECK:       func.func private @fused_exp_negative_tanh(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {tir.kind = "elementwise", tir.prim_func}
// CHECK-COUNT-1: "tir.block"
// CHECK:           tir.exp
// CHECK-NEXT:      arith.negf
// CHECK-NEXT:      tir.tanh
// CHECK-NOT:   private
// BLOCKS-LABEL: func.func private @fused_exp_negative_tanh
// BLOCKS-COUNT-3: "tir.block"
func.func @chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.negative"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// What follows a contraction is one block, what it adds is computed there: the contraction keeps plain operands.
// CHECK-LABEL: func.func @contraction(
// CHECK:       func.func private @fused_matmul_add_relu(
// CHECK-SAME:    tir.kind = "contraction"
// CHECK:         %[[M:.*]] = "tir.block"(%arg0, %arg1)
// CHECK:         "tir.block"(%[[M]], %arg2)
// CHECK:           arith.addf
// CHECK:           arith.maximumf
// CHECK-NOT:     "tir.block"
func.func @contraction(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<8x8xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "relax.add"(%0, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %2 = "relax.relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// A cheap producer is computed where it is read, twice if it is read at two places; a costly one is kept.
// CHECK-LABEL: func.func private @fused_negative_permute_add(
// CHECK:         "tir.block"(%arg0, %arg0)
// CHECK-COUNT-2:   arith.negf
// CHECK-NOT:     "tir.block"
// CHECK-LABEL: func.func private @fused_exp_permute_add(
// CHECK:         %[[E:.*]] = "tir.block"(%arg0)
// CHECK:           tir.exp
// CHECK:         "tir.block"(%[[E]], %[[E]])
// CHECK-NOT:       tir.exp
func.func @twice(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = "relax.negative"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "relax.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %4 = "relax.permute"(%3) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %5 = "relax.add"(%3, %4) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2, %5 : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Groups that compute the same share a prim function.
// CHECK-LABEL: func.func @shared(
// CHECK:         "relax.call_tir"(%arg0) {callee = @[[F:fused_exp_negative]],
// CHECK:         "relax.call_tir"(%arg1) {callee = @[[F]],
// CHECK:       func.func private @[[F]](
// CHECK-NOT:   private
func.func @shared(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.negative"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.exp"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.negative"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %3 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A producer moves along with how it is read: the map of its operand is the composition.
// CHECK:       #[[T:.*]] = affine_map<(d0, d1) -> (d1, d0 + 4)>
// CHECK-LABEL: func.func @moved(
// CHECK:       func.func private @fused_relu_strided_slice_permute(
// CHECK-COUNT-1: "tir.block"
// CHECK:         maps = [#[[T]], #{{.*}}]
func.func @moved(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.strided_slice"(%0) {axes = array<i64: 1>, begin = array<i64: 4>, end = array<i64: 8>, strides = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %2 = "relax.permute"(%1) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// Where a producer counts its axes, those of its reader are made: what is before the start counts from the end.
// CHECK-LABEL: func.func @wrapped(
// CHECK:       func.func private @fused_arange_pad(
// CHECK:         %[[N:.*]] = arith.constant 5 : index
// CHECK:         %[[R:.*]] = arith.remsi %{{.*}}, %[[N]] : index
// CHECK:         %[[P:.*]] = arith.addi %[[R]], %[[N]] : index
// CHECK:         arith.remsi %[[P]], %[[N]] : index
func.func @wrapped() -> tensor<7xf32> {
  %0 = "relax.arange"() {dtype = f32, start = 0.0, step = 1.0, stop = 5.0} : () -> tensor<5xf32>
  %1 = "relax.pad"(%0) {mode = "wrap", pads = array<i64: 2, 0>} : (tensor<5xf32>) -> tensor<7xf32>
  return %1 : tensor<7xf32>
}
