// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Pooling.

// CHECK-LABEL: func.func @max_pool2d(
func.func @max_pool2d(%x: tensor<?x64x112x112xf32, #relax.dims<["b", 64, 112, 112]>>) -> tensor<?x64x56x56xf32, #relax.dims<["b", 64, 56, 56]>> {
  // CHECK: "relax.max_pool"(%{{.*}}) {kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} :
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : (tensor<?x64x112x112xf32, #relax.dims<["b", 64, 112, 112]>>) -> tensor<?x64x56x56xf32, #relax.dims<["b", 64, 56, 56]>>
  return %0 : tensor<?x64x56x56xf32, #relax.dims<["b", 64, 56, 56]>>
}

// CHECK-LABEL: func.func @max_pool_integers(
func.func @max_pool_integers(%x: tensor<1x2x8xui8>) -> tensor<1x2x7xui8> {
  // CHECK: "relax.max_pool"(%{{.*}}) {kernel = array<i64: 2>} :
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 2>} : (tensor<1x2x8xui8>) -> tensor<1x2x7xui8>
  return %0 : tensor<1x2x7xui8>
}

// CHECK-LABEL: func.func @max_pool_ceil(
func.func @max_pool_ceil(%x: tensor<1x2x6x6xf32>) -> tensor<1x2x3x3xf32> {
  // CHECK: "relax.max_pool"(%{{.*}}) {ceil_mode = true, kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>} :
  %0 = "relax.max_pool"(%x) {ceil_mode = true, kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x3x3xf32>
  return %0 : tensor<1x2x3x3xf32>
}

// CHECK-LABEL: func.func @max_pool_ceil_drops_a_window_in_the_padding(
func.func @max_pool_ceil_drops_a_window_in_the_padding(%x: tensor<1x2x4xf32>) -> tensor<1x2x2xf32> {
  // CHECK: "relax.max_pool"(%{{.*}}) {ceil_mode = true, kernel = array<i64: 1>, strides = array<i64: 3>} :
  %0 = "relax.max_pool"(%x) {ceil_mode = true, kernel = array<i64: 1>, strides = array<i64: 3>} : (tensor<1x2x4xf32>) -> tensor<1x2x2xf32>
  return %0 : tensor<1x2x2xf32>
}

// CHECK-LABEL: func.func @max_pool_symbolic(
func.func @max_pool_symbolic(%x: tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "floordiv(h + 1, 2) - 1", "floordiv(w, 2)"]>> {
  // CHECK: "relax.max_pool"(%{{.*}}) {dilations = array<i64: 2, 1>, kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} :
  %0 = "relax.max_pool"(%x) {dilations = array<i64: 2, 1>, kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<?x3x?x?xf32, #relax.dims<["b", 3, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "floordiv(h + 1, 2) - 1", "floordiv(w, 2)"]>>
  return %0 : tensor<?x3x?x?xf32, #relax.dims<["b", 3, "floordiv(h + 1, 2) - 1", "floordiv(w, 2)"]>>
}

// CHECK-LABEL: func.func @avg_pool2d(
func.func @avg_pool2d(%x: tensor<1x8x7x7xf32>) -> tensor<1x8x1x1xf32> {
  // CHECK: "relax.avg_pool"(%{{.*}}) {kernel = array<i64: 7, 7>} :
  %0 = "relax.avg_pool"(%x) {kernel = array<i64: 7, 7>} : (tensor<1x8x7x7xf32>) -> tensor<1x8x1x1xf32>
  return %0 : tensor<1x8x1x1xf32>
}

// CHECK-LABEL: func.func @avg_pool_counts_padding(
func.func @avg_pool_counts_padding(%x: tensor<1x8x7x7xf32>) -> tensor<1x8x6x6xf32> {
  // CHECK: "relax.avg_pool"(%{{.*}}) {count_include_pad = true, kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 0, 0>} :
  %0 = "relax.avg_pool"(%x) {count_include_pad = true, kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 0, 0>} : (tensor<1x8x7x7xf32>) -> tensor<1x8x6x6xf32>
  return %0 : tensor<1x8x6x6xf32>
}

// CHECK-LABEL: func.func @avg_pool_channels_last(
func.func @avg_pool_channels_last(%x: tensor<?x6x?x8xf32, #relax.dims<["b", 6, "n", 8]>>) -> tensor<?x3x?x8xf32, #relax.dims<["b", 3, "floordiv(n + 1, 2)", 8]>> {
  // CHECK: "relax.avg_pool"(%{{.*}}) {ceil_mode = true, data_layout = "N*C", kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} :
  %0 = "relax.avg_pool"(%x) {ceil_mode = true, data_layout = "N*C", kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<?x6x?x8xf32, #relax.dims<["b", 6, "n", 8]>>) -> tensor<?x3x?x8xf32, #relax.dims<["b", 3, "floordiv(n + 1, 2)", 8]>>
  return %0 : tensor<?x3x?x8xf32, #relax.dims<["b", 3, "floordiv(n + 1, 2)", 8]>>
}

// CHECK-LABEL: func.func @lp_pool3d(
func.func @lp_pool3d(%x: tensor<1x2x4x4x4xf32>) -> tensor<1x2x3x3x3xf32> {
  // CHECK: "relax.lp_pool"(%{{.*}}) {kernel = array<i64: 2, 2, 2>, p = 3 : i64} :
  %0 = "relax.lp_pool"(%x) {kernel = array<i64: 2, 2, 2>, p = 3 : i64} : (tensor<1x2x4x4x4xf32>) -> tensor<1x2x3x3x3xf32>
  return %0 : tensor<1x2x3x3x3xf32>
}

// CHECK-LABEL: func.func @lp_pool_default(
func.func @lp_pool_default(%x: tensor<1x2x4xf32>) -> tensor<1x2x3xf32> {
  // CHECK: "relax.lp_pool"(%{{.*}}) {kernel = array<i64: 2>} :
  %0 = "relax.lp_pool"(%x) {kernel = array<i64: 2>} : (tensor<1x2x4xf32>) -> tensor<1x2x3xf32>
  return %0 : tensor<1x2x3xf32>
}

// CHECK-LABEL: func.func @max_pool_positions(
func.func @max_pool_positions(%x: tensor<1x2x6x6xf32>) -> (tensor<1x2x3x3xf32>, tensor<1x2x3x3xi64>) {
  // CHECK: "relax.max_pool_with_indices"(%{{.*}}) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} :
  %0:2 = "relax.max_pool_with_indices"(%x) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<1x2x6x6xf32>) -> (tensor<1x2x3x3xf32>, tensor<1x2x3x3xi64>)
  return %0#0, %0#1 : tensor<1x2x3x3xf32>, tensor<1x2x3x3xi64>
}

// CHECK-LABEL: func.func @max_pool_positions_column_major(
func.func @max_pool_positions_column_major(%x: tensor<?x2x?x6xf32, #relax.dims<["b", 2, "h", 6]>>) -> (tensor<?x2x?x4xf32, #relax.dims<["b", 2, "h - 1", 4]>>, tensor<?x2x?x4xi64, #relax.dims<["b", 2, "h - 1", 4]>>) {
  // CHECK: "relax.max_pool_with_indices"(%{{.*}}) {kernel = array<i64: 2, 3>, storage_order = 1 : i64} :
  %0:2 = "relax.max_pool_with_indices"(%x) {kernel = array<i64: 2, 3>, storage_order = 1 : i64} : (tensor<?x2x?x6xf32, #relax.dims<["b", 2, "h", 6]>>) -> (tensor<?x2x?x4xf32, #relax.dims<["b", 2, "h - 1", 4]>>, tensor<?x2x?x4xi64, #relax.dims<["b", 2, "h - 1", 4]>>)
  return %0#0, %0#1 : tensor<?x2x?x4xf32, #relax.dims<["b", 2, "h - 1", 4]>>, tensor<?x2x?x4xi64, #relax.dims<["b", 2, "h - 1", 4]>>
}
