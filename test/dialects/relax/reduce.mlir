// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Reductions, arg reductions, cumulative operators.

// CHECK-LABEL: func.func @reduce_everything(
func.func @reduce_everything(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32> {
  // CHECK: "relax.reduce_sum"(%{{.*}}) :
  %0 = "relax.reduce_sum"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_mean"(%{{.*}}) :
  %1 = "relax.reduce_mean"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_prod"(%{{.*}}) :
  %2 = "relax.reduce_prod"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_max"(%{{.*}}) :
  %3 = "relax.reduce_max"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_min"(%{{.*}}) :
  %4 = "relax.reduce_min"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_l1"(%{{.*}}) :
  %5 = "relax.reduce_l1"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_l2"(%{{.*}}) :
  %6 = "relax.reduce_l2"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_sum_square"(%{{.*}}) :
  %7 = "relax.reduce_sum_square"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_log_sum"(%{{.*}}) :
  %8 = "relax.reduce_log_sum"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  // CHECK: "relax.reduce_log_sum_exp"(%{{.*}}) :
  %9 = "relax.reduce_log_sum_exp"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<f32>
  return %9 : tensor<f32>
}

// CHECK-LABEL: func.func @reduce_one_axis(
func.func @reduce_one_axis(%x: tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>> {
  // CHECK: "relax.reduce_sum"(%{{.*}}) {axes = array<i64: 1>} :
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_mean"(%{{.*}}) {axes = array<i64: 1>} :
  %1 = "relax.reduce_mean"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_prod"(%{{.*}}) {axes = array<i64: 1>} :
  %2 = "relax.reduce_prod"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_max"(%{{.*}}) {axes = array<i64: 1>} :
  %3 = "relax.reduce_max"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_min"(%{{.*}}) {axes = array<i64: 1>} :
  %4 = "relax.reduce_min"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_l1"(%{{.*}}) {axes = array<i64: 1>} :
  %5 = "relax.reduce_l1"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_l2"(%{{.*}}) {axes = array<i64: 1>} :
  %6 = "relax.reduce_l2"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_sum_square"(%{{.*}}) {axes = array<i64: 1>} :
  %7 = "relax.reduce_sum_square"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_log_sum"(%{{.*}}) {axes = array<i64: 1>} :
  %8 = "relax.reduce_log_sum"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.reduce_log_sum_exp"(%{{.*}}) {axes = array<i64: 1>} :
  %9 = "relax.reduce_log_sum_exp"(%x) {axes = array<i64: 1>} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  return %9 : tensor<?x?xf32, #relax.dims<["b", "n"]>>
}

// CHECK-LABEL: func.func @reduce_keepdims(
func.func @reduce_keepdims(%x: tensor<?x3x?xi32, #relax.dims<["b", 3, "n"]>>) -> tensor<1x3x1xi32> {
  // CHECK: "relax.reduce_sum"(%{{.*}}) {axes = array<i64: -1, 0>, keepdims = true} :
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: -1, 0>, keepdims = true} : (tensor<?x3x?xi32, #relax.dims<["b", 3, "n"]>>) -> tensor<1x3x1xi32>
  // CHECK: "relax.reduce_max"(%{{.*}}) {axes = array<i64: -1, 0>, keepdims = true} :
  %1 = "relax.reduce_max"(%x) {axes = array<i64: -1, 0>, keepdims = true} : (tensor<?x3x?xi32, #relax.dims<["b", 3, "n"]>>) -> tensor<1x3x1xi32>
  // CHECK: "relax.reduce_mean"(%{{.*}}) {axes = array<i64: -1, 0>, keepdims = true} :
  %2 = "relax.reduce_mean"(%x) {axes = array<i64: -1, 0>, keepdims = true} : (tensor<?x3x?xi32, #relax.dims<["b", 3, "n"]>>) -> tensor<1x3x1xi32>
  // CHECK: "relax.reduce_l1"(%{{.*}}) {axes = array<i64: -1, 0>, keepdims = true} :
  %3 = "relax.reduce_l1"(%x) {axes = array<i64: -1, 0>, keepdims = true} : (tensor<?x3x?xi32, #relax.dims<["b", 3, "n"]>>) -> tensor<1x3x1xi32>
  return %3 : tensor<1x3x1xi32>
}

// CHECK-LABEL: func.func @reduce_no_axis(
func.func @reduce_no_axis(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK: "relax.reduce_sum"(%{{.*}}) {axes = array<i64>} :
  %0 = "relax.reduce_sum"(%x) {axes = array<i64>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @reduce_bool(
func.func @reduce_bool(%x: tensor<4xi1>) -> tensor<i1> {
  // CHECK: "relax.reduce_any"(%{{.*}}) :
  %0 = "relax.reduce_any"(%x) : (tensor<4xi1>) -> tensor<i1>
  // CHECK: "relax.reduce_all"(%{{.*}}) {axes = array<i64: 0>} :
  %1 = "relax.reduce_all"(%x) {axes = array<i64: 0>} : (tensor<4xi1>) -> tensor<i1>
  // CHECK: "relax.reduce_max"(%{{.*}}) :
  %2 = "relax.reduce_max"(%x) : (tensor<4xi1>) -> tensor<i1>
  // CHECK: "relax.reduce_min"(%{{.*}}) {axes = array<i64: 0>} :
  %3 = "relax.reduce_min"(%x) {axes = array<i64: 0>} : (tensor<4xi1>) -> tensor<i1>
  return %3 : tensor<i1>
}

// CHECK-LABEL: func.func @arg_default(
func.func @arg_default(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<1x3xi64> {
  // CHECK: "relax.argmax"(%{{.*}}) :
  %0 = "relax.argmax"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<1x3xi64>
  // CHECK: "relax.argmin"(%{{.*}}) :
  %1 = "relax.argmin"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<1x3xi64>
  return %1 : tensor<1x3xi64>
}

// CHECK-LABEL: func.func @arg_options(
func.func @arg_options(%x: tensor<?x3xui8, #relax.dims<["b", 3]>>) -> tensor<?xi64, #relax.dims<["b"]>> {
  // CHECK: "relax.argmax"(%{{.*}}) {axis = -1 : i64, keepdims = false, select_last = true} :
  %0 = "relax.argmax"(%x) {axis = -1 : i64, keepdims = false, select_last = true} : (tensor<?x3xui8, #relax.dims<["b", 3]>>) -> tensor<?xi64, #relax.dims<["b"]>>
  // CHECK: "relax.argmin"(%{{.*}}) {axis = 1 : i64, keepdims = false} :
  %1 = "relax.argmin"(%x) {axis = 1 : i64, keepdims = false} : (tensor<?x3xui8, #relax.dims<["b", 3]>>) -> tensor<?xi64, #relax.dims<["b"]>>
  return %1 : tensor<?xi64, #relax.dims<["b"]>>
}

// CHECK-LABEL: func.func @cumulative(
func.func @cumulative(%x: tensor<?x3xf32, #relax.dims<["n", 3]>>) -> tensor<?x3xf32, #relax.dims<["n", 3]>> {
  // CHECK: "relax.cumsum"(%{{.*}}) {axis = 0 : i64} :
  %0 = "relax.cumsum"(%x) {axis = 0 : i64} : (tensor<?x3xf32, #relax.dims<["n", 3]>>) -> tensor<?x3xf32, #relax.dims<["n", 3]>>
  // CHECK: "relax.cumprod"(%{{.*}}) {axis = -1 : i64} :
  %1 = "relax.cumprod"(%x) {axis = -1 : i64} : (tensor<?x3xf32, #relax.dims<["n", 3]>>) -> tensor<?x3xf32, #relax.dims<["n", 3]>>
  // CHECK: "relax.cumsum"(%{{.*}}) {axis = 1 : i64, exclusive = true, reverse = true} :
  %2 = "relax.cumsum"(%x) {axis = 1 : i64, exclusive = true, reverse = true} : (tensor<?x3xf32, #relax.dims<["n", 3]>>) -> tensor<?x3xf32, #relax.dims<["n", 3]>>
  return %2 : tensor<?x3xf32, #relax.dims<["n", 3]>>
}
