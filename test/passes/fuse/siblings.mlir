// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --split-input-file | FileCheck %s
// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --fuse-tir --split-input-file | FileCheck %s --check-prefix=TIR

// Reductions of columns that read one tensor are one kernel, whose block has a result for each. What reads one of them
// is computed behind it. A map is computed once for all.
// CHECK-LABEL: func.func @joined(
// CHECK-NEXT:    %[[Y:.*]]:3 = call @fused_reduce_sum_multiply_reduce_max{{[_0]*}}(%arg0, %arg1)
// CHECK-NEXT:    %[[T:.*]] = "relax.call_tir"(%[[Y]]#0) {callee = @reduce_max
// CHECK-NEXT:    return %[[T]], %[[Y]]#1, %[[Y]]#2
// TIR:         func.func private @fused_reduce_sum_multiply_reduce_max{{[_0]*}}({{.*}}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
// TIR-NEXT:      "tir.block"
// TIR-COUNT-1:   arith.mulf
// TIR-NOT:       arith.mulf
// TIR-NOT:       "tir.block"
// TIR:           return
func.func @joined(%x: tensor<64x8xf32>, %y: tensor<64x8xf32>) -> (tensor<1xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %1 = "relax.reduce_max"(%0) {axes = array<i64: 0>, keepdims = true} : (tensor<8xf32>) -> tensor<1xf32>
  %2 = "relax.multiply"(%x, %y) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %4 = "relax.reduce_max"(%2) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  return %1, %3, %4 : tensor<1xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// One that needs another's result, itself or by way of a value between, is a kernel of its own.
// CHECK-LABEL: func.func @chained(
// CHECK-NEXT:    %[[M:.*]] = "relax.call_tir"(%arg0) {callee = @reduce_sum
// CHECK-NEXT:    %[[V:.*]] = call @fused_subtract_multiply_reduce_sum(%arg0, %[[M]])
// CHECK-NEXT:    return %[[M]], %[[V]]
func.func @chained(%x: tensor<64x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %1 = "relax.subtract"(%x, %0) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  %2 = "relax.multiply"(%1, %x) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  return %0, %3 : tensor<8xf32>, tensor<8xf32>
}
// CHECK-LABEL: func.func @by_another_value(
// CHECK-NEXT:    %[[M:.*]] = "relax.call_tir"(%arg0) {callee = @reduce_sum
// CHECK-NEXT:    %[[E:.*]] = "relax.call_tir"(%[[M]]) {callee = @reduce_max
// CHECK-NEXT:    %[[V:.*]] = call @fused_multiply_{{.*}}reduce_sum{{.*}}(%arg0, %[[E]])
// CHECK-NEXT:    return %[[E]], %[[V]]
func.func @by_another_value(%x: tensor<64x8xf32>) -> (tensor<1xf32>, tensor<8xf32>) {
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  %1 = "relax.reduce_max"(%0) {axes = array<i64: 0>, keepdims = true} : (tensor<8xf32>) -> tensor<1xf32>
  %2 = "relax.multiply"(%x, %1) : (tensor<64x8xf32>, tensor<1xf32>) -> tensor<64x8xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
  return %1, %3 : tensor<1xf32>, tensor<8xf32>
}

// -----

// So are those of other tensors, or over other axes, and those whose common operand is small.
// CHECK-LABEL: func.func @apart(
// CHECK-COUNT-3: callee = @reduce_sum
// CHECK:         call @fused_multiply_reduce_sum
// CHECK:         call @fused_multiply_reduce_sum
func.func @apart(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>, %m: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 0>} : (tensor<8x8xf32>) -> tensor<8xf32>
  %1 = "relax.reduce_sum"(%y) {axes = array<i64: 1>} : (tensor<8x8xf32>) -> tensor<8xf32>
  %2 = "relax.reduce_sum"(%m) {axes = array<i64: 0>, keepdims = true} : (tensor<8xf32>) -> tensor<1xf32>
  %3 = "relax.multiply"(%x, %m) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %4 = "relax.reduce_sum"(%3) {axes = array<i64: 1>} : (tensor<8x8xf32>) -> tensor<8xf32>
  %5 = "relax.multiply"(%y, %m) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %6 = "relax.reduce_sum"(%5) {axes = array<i64: 0>} : (tensor<8x8xf32>) -> tensor<8xf32>
  %7 = "relax.add"(%0, %2) : (tensor<8xf32>, tensor<1xf32>) -> tensor<8xf32>
  return %7, %1, %4, %6, %0 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
