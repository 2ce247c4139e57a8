// RUN: mirlo-opt %s --simplify | FileCheck %s

// CHECK-LABEL: func.func @mean_of_sum(
// CHECK-NEXT:    %[[M:.*]] = "relax.reduce_mean"(%arg0) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
// CHECK-NEXT:    return %[[M]]
func.func @mean_of_sum(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %six = "relax.constant"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
  %1 = "relax.divide"(%0, %six) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @another_divisor(
// CHECK:         "relax.reduce_sum"
func.func @another_divisor(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %five = "relax.constant"() {value = dense<5.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
  %1 = "relax.divide"(%0, %five) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// A sum that is read elsewhere, too, is computed once.
// CHECK-LABEL: func.func @sum_and_mean(
// CHECK-NOT:     "relax.reduce_mean"
func.func @sum_and_mean(%x: tensor<4x6xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %six = "relax.constant"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
  %1 = "relax.divide"(%0, %six) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @softmax(
// CHECK-NEXT:    %[[S:.*]] = "relax.softmax"(%arg0) {axis = 1 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT:    return %[[S]]
func.func @softmax(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %low = "relax.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.reduce_max"(%x) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
  %1 = "relax.maximum"(%low, %0) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.reshape"(%1) {shape = [4, 1]} : (tensor<4xf32>) -> tensor<4x1xf32>
  %3 = "relax.subtract"(%x, %2) : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
  %4 = "relax.exp"(%3) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %5 = "relax.reduce_sum"(%4) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
  %6 = "relax.reshape"(%5) {shape = [4, 1]} : (tensor<4xf32>) -> tensor<4x1xf32>
  %7 = "relax.divide"(%4, %6) : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
  return %7 : tensor<4x6xf32>
}

// The sum is over the other axis: of a square matrix, the shapes agree.
// CHECK-LABEL: func.func @sum_over_another_axis(
// CHECK-NOT:     relax.softmax
// CHECK:         return
func.func @sum_over_another_axis(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "relax.reduce_max"(%x) {axes = array<i64: 1>, keepdims = true} : (tensor<4x4xf32>) -> tensor<4x1xf32>
  %1 = "relax.subtract"(%x, %0) : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  %2 = "relax.exp"(%1) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %4 = "relax.reshape"(%3) {shape = [4, 1]} : (tensor<4xf32>) -> tensor<4x1xf32>
  %5 = "relax.divide"(%2, %4) : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  return %5 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @log_softmax(
// CHECK-NEXT:    %[[S:.*]] = "relax.log_softmax"(%arg0) {axis = 0 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT:    return %[[S]]
func.func @log_softmax(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = "relax.reduce_max"(%x) {axes = array<i64: 0>, keepdims = true} : (tensor<4x6xf32>) -> tensor<1x6xf32>
  %1 = "relax.subtract"(%x, %0) : (tensor<4x6xf32>, tensor<1x6xf32>) -> tensor<4x6xf32>
  %2 = "relax.exp"(%1) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 0>, keepdims = true} : (tensor<4x6xf32>) -> tensor<1x6xf32>
  %4 = "relax.log"(%3) : (tensor<1x6xf32>) -> tensor<1x6xf32>
  %5 = "relax.subtract"(%1, %4) : (tensor<4x6xf32>, tensor<1x6xf32>) -> tensor<4x6xf32>
  return %5 : tensor<4x6xf32>
}

// CHECK-LABEL: func.func @kept_dims(
// CHECK-NEXT:    "relax.reduce_max"(%arg0) {axes = array<i64: 1>, keepdims = true} : (tensor<4x6xf32>) -> tensor<4x1xf32>
func.func @kept_dims(%x: tensor<4x6xf32>) -> tensor<4x1xf32> {
  %0 = "relax.reduce_max"(%x) {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
  %1 = "relax.reshape"(%0) {shape = [4, 1]} : (tensor<4xf32>) -> tensor<4x1xf32>
  return %1 : tensor<4x1xf32>
}
