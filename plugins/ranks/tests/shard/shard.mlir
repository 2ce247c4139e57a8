// RUN: mirlo-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(shard{ranks=2 rank=1 plan=stay=replicate}))' | FileCheck %s

// Columns, then rows: one sum. The second rank has the second halves.

// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  // CHECK-DAG: %[[UP:.*]] = "relax.constant"() {value = dense<{{\[\[}}3.000000e+00, 4.000000e+00], [7.000000e+00, 8.000000e+00]]> : tensor<2x2xf32>}
  // CHECK-DAG: %[[DOWN:.*]] = "relax.constant"() {value = dense<{{\[\[}}5.000000e+00, 6.000000e+00], [7.000000e+00, 8.000000e+00]]> : tensor<2x2xf32>}
  // CHECK: %[[H:.*]] = "relax.matmul"(%arg0, %[[UP]]) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  // CHECK: %[[A:.*]] = "relax.relu"(%[[H]])
  // CHECK: %[[P:.*]] = "relax.matmul"(%[[A]], %[[DOWN]]) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  // CHECK: %[[S:.*]] = "relax.all_reduce"(%[[P]]) {ranks = 2 : i64}
  // CHECK: "relax.add"(%[[S]], %arg0)
  %up = "relax.constant"() {value = dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %down = "relax.constant"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
  %0 = "relax.matmul"(%x, %up) : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %1 = "relax.relu"(%0) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %2 = "relax.matmul"(%1, %down) : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %3 = "relax.add"(%2, %x) : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  return %3 : tensor<3x2xf32>
}

// -----

// What a softmax follows is not divided, nor what the plan keeps.

// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<3x2xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  // CHECK-NOT: ranks =
  // CHECK: return
  %w = "relax.constant"() {value = dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %1 = "relax.softmax"(%0) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %2 = "relax.matmul"(%x, %w) : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<3x4xf32> loc("stay")
  return %1, %2 : tensor<3x4xf32>, tensor<3x4xf32>
}

// -----

// Rows of a table: those of the other rank are zeros.

// CHECK-LABEL: func.func @main(
func.func @main(%at: tensor<3xi64>) -> tensor<3x2xf32> {
  // CHECK-DAG: %[[TABLE:.*]] = "relax.constant"() {value = dense<{{\[\[}}5.000000e+00, 6.000000e+00], [7.000000e+00, 8.000000e+00]]> : tensor<2x2xf32>}
  // CHECK: %[[ROWS:.*]] = "relax.gather"(%[[TABLE]], %{{.*}}) : (tensor<2x2xf32>, tensor<3xi64>) -> tensor<3x2xf32>
  // CHECK: %[[OWN:.*]] = "relax.where"(%{{.*}}, %[[ROWS]], %{{.*}})
  // CHECK: "relax.all_reduce"(%[[OWN]]) {ranks = 2 : i64}
  %table = "relax.constant"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
  %0 = "relax.gather"(%table, %at) : (tensor<4x2xf32>, tensor<3xi64>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// A product of which the columns are split behind it; columns of an output are gathered.

// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  // CHECK-DAG: dense<{{\[\[}}2.000000e+00], [6.000000e+00]]> : tensor<2x1xf32>
  // CHECK-DAG: dense<{{\[\[}}4.000000e+00], [8.000000e+00]]> : tensor<2x1xf32>
  // CHECK: %[[Y:.*]] = "relax.multiply"(%{{.*}}, %{{.*}}) : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x1xf32>
  // CHECK: "relax.all_gather"(%[[Y]]) {axis = 1 : i64, ranks = 2 : i64} : (tensor<3x1xf32>) -> tensor<3x2xf32>
  %w = "relax.constant"() {value = dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %1:2 = "relax.split"(%0) {axis = 1 : i64, sizes = [2, 2], resultSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>)
  %2 = "relax.multiply"(%1#0, %1#1) : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}

// -----

// Heads share keys and values, and keep their rows of the cache.

!rows = tensor<1x?x4xf32, #relax.dims<[1, "length", 4]>>
!new = tensor<1x2x?x2xf32, #relax.dims<[1, 2, "length", 2]>>
!past = tensor<1x2x?x2xf32, #relax.dims<[1, 2, "past", 2]>>

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg1: tensor<1x1x?x2xf32, #relax.dims<[1, 1, "past", 2]>>
// CHECK-SAME: -> tensor<1x1x?x2xf32, #relax.dims<[1, 1, "past", 2]>>
func.func @main(%x: !rows, %cache: !past, %at: tensor<1x?xi64, #relax.dims<[1, "length"]>>) -> !past {
  // CHECK: "relax.cache_write"(%arg1, %{{.*}}, %arg2) {shape = [1, 1, "past", 2]}
  %w = "relax.constant"() {value = dense<1.0> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %0 = "relax.matmul"(%x, %w) : (!rows, tensor<4x4xf32>) -> !rows
  %1 = "relax.reshape"(%0) {shape = [1, "length", 2, 2]} : (!rows) -> tensor<1x?x2x2xf32, #relax.dims<[1, "length", 2, 2]>>
  %2 = "relax.permute"(%1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x?x2x2xf32, #relax.dims<[1, "length", 2, 2]>>) -> !new
  %3 = "relax.cache_write"(%cache, %2, %at) {shape = [1, 2, "past", 2]} : (!past, !new, tensor<1x?xi64, #relax.dims<[1, "length"]>>) -> !past
  return %3 : !past
}

// -----

// Partial sums that are written to zeros stay partial.

// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<3x2xf32>, %at: tensor<3x1xi64>) -> tensor<5x2xf32> {
  // CHECK: %[[P:.*]] = "relax.matmul"
  // CHECK: %[[P:.*]] = "relax.matmul"
  // CHECK: %[[A:.*]] = "relax.scatter_nd"(%{{.*}}, %arg1, %[[P]])
  // CHECK: %[[B:.*]] = "relax.scatter_nd"(%[[A]], %arg1, %[[P]])
  // CHECK: %[[S:.*]] = "relax.all_reduce"(%[[B]])
  // CHECK: return %[[S]]
  %up = "relax.constant"() {value = dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %down = "relax.constant"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
  %start = "relax.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %to = "relax.expand"(%start) {shape = [5, 2]} : (tensor<f32>) -> tensor<5x2xf32>
  %0 = "relax.matmul"(%x, %up) : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %1 = "relax.matmul"(%0, %down) : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %2 = "relax.scatter_nd"(%to, %at, %1) : (tensor<5x2xf32>, tensor<3x1xi64>, tensor<3x2xf32>) -> tensor<5x2xf32>
  %3 = "relax.scatter_nd"(%2, %at, %1) : (tensor<5x2xf32>, tensor<3x1xi64>, tensor<3x2xf32>) -> tensor<5x2xf32>
  return %3 : tensor<5x2xf32>
}

// -----

// Written to other values they are summed first.

// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<3x2xf32>, %at: tensor<3x1xi64>) -> tensor<5x2xf32> {
  // CHECK: %[[S:.*]] = "relax.all_reduce"
  // CHECK: %[[A:.*]] = "relax.scatter_nd"(%{{.*}}, %arg1, %[[S]])
  // CHECK: %[[B:.*]] = "relax.scatter_nd"(%[[A]], %arg1, %[[S]])
  // CHECK-NOT: all_reduce
  // CHECK: return %[[B]]
  %up = "relax.constant"() {value = dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %down = "relax.constant"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
  %start = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %to = "relax.expand"(%start) {shape = [5, 2]} : (tensor<f32>) -> tensor<5x2xf32>
  %0 = "relax.matmul"(%x, %up) : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %1 = "relax.matmul"(%0, %down) : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %2 = "relax.scatter_nd"(%to, %at, %1) : (tensor<5x2xf32>, tensor<3x1xi64>, tensor<3x2xf32>) -> tensor<5x2xf32>
  %3 = "relax.scatter_nd"(%2, %at, %1) : (tensor<5x2xf32>, tensor<3x1xi64>, tensor<3x2xf32>) -> tensor<5x2xf32>
  return %3 : tensor<5x2xf32>
}
