// RUN: mirlo-opt %s --simplify | FileCheck %s

// A layer norm spelled out, as exporters did before there was an operator for it.
// CHECK-LABEL: func.func @layer_norm(
// CHECK-NEXT:    %[[N:.*]] = "relax.layer_norm"(%arg0, %arg1, %arg2) {axis = 2 : i64, epsilon = 5.000000e-01 : f64, {{.*}}}
// CHECK-NEXT:    return %[[N]]
func.func @layer_norm(%x: tensor<2x4x8xf32>, %scale: tensor<8xf32>, %bias: tensor<8xf32>) -> tensor<2x4x8xf32> {
  %two = "relax.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.reduce_mean"(%x) {axes = array<i64: -1>, keepdims = true} : (tensor<2x4x8xf32>) -> tensor<2x4x1xf32>
  %1 = "relax.subtract"(%x, %0) : (tensor<2x4x8xf32>, tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
  %2 = "relax.power"(%1, %two) : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4x8xf32>
  %3 = "relax.reduce_mean"(%2) {axes = array<i64: -1>, keepdims = true} : (tensor<2x4x8xf32>) -> tensor<2x4x1xf32>
  %4 = "relax.add"(%3, %half) : (tensor<2x4x1xf32>, tensor<f32>) -> tensor<2x4x1xf32>
  %5 = "relax.sqrt"(%4) : (tensor<2x4x1xf32>) -> tensor<2x4x1xf32>
  %6 = "relax.divide"(%1, %5) : (tensor<2x4x8xf32>, tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
  %7 = "relax.multiply"(%6, %scale) : (tensor<2x4x8xf32>, tensor<8xf32>) -> tensor<2x4x8xf32>
  %8 = "relax.add"(%7, %bias) : (tensor<2x4x8xf32>, tensor<8xf32>) -> tensor<2x4x8xf32>
  return %8 : tensor<2x4x8xf32>
}

// An RMS norm, by the reciprocal of the root.
// CHECK-LABEL: func.func @rms_norm(
// CHECK:         "relax.rms_norm"(%arg0, %arg1) {axis = 1 : i64, epsilon = 2.500000e-01 : f64}
// CHECK-NEXT:    return
func.func @rms_norm(%x: tensor<4x8xf32>, %scale: tensor<8xf32>) -> tensor<4x8xf32> {
  %e = "relax.constant"() {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.multiply"(%x, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.reduce_mean"(%0) {axes = array<i64: 1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %2 = "relax.add"(%e, %1) : (tensor<f32>, tensor<4x1xf32>) -> tensor<4x1xf32>
  %3 = "relax.rsqrt"(%2) : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %4 = "relax.multiply"(%x, %3) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %5 = "relax.multiply"(%scale, %4) : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// Not over the first axis, nor with the deviation of something else; a factor per row is not a scale.
// CHECK-LABEL: func.func @declined(
// CHECK-COUNT-2: "relax.divide"
// CHECK:         %[[N:.*]] = "relax.rms_norm"(%arg0)
// CHECK:         "relax.multiply"(%[[N]], %arg1)
func.func @declined(%x: tensor<4x8xf32>, %rows: tensor<4x1xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %e = "relax.constant"() {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.square"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.reduce_mean"(%0) {axes = array<i64: 0>, keepdims = true} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = "relax.add"(%1, %e) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %3 = "relax.sqrt"(%2) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %4 = "relax.divide"(%x, %3) : (tensor<4x8xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  %5 = "relax.reduce_mean"(%0) {axes = array<i64: 1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %6 = "relax.add"(%5, %e) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %7 = "relax.sqrt"(%6) : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %8 = "relax.divide"(%y, %7) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %9 = "relax.divide"(%x, %7) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %10 = "relax.multiply"(%9, %rows) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return %4, %8, %10 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}


// The variance as the difference of two means, kept from being negative, and the scale in the reciprocal: as flax has it.
// CHECK-LABEL: func.func @difference_of_squares(
// CHECK-NEXT:    %[[N:.*]] = "relax.layer_norm"(%arg0, %arg1) {axis = 1 : i64, epsilon = 5.000000e-01 : f64
// CHECK-NEXT:    return %[[N]]
func.func @difference_of_squares(%x: tensor<4x8xf32>, %scale: tensor<8xf32>) -> tensor<4x8xf32> {
  %zero = "relax.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %eight = "relax.constant"() {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "relax.divide"(%0, %eight) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = "relax.multiply"(%x, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %4 = "relax.divide"(%3, %eight) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = "relax.multiply"(%1, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.subtract"(%4, %5) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %7 = "relax.maximum"(%zero, %6) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %8 = "relax.add"(%7, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %9 = "relax.rsqrt"(%8) : (tensor<4xf32>) -> tensor<4xf32>
  %10 = "relax.reshape"(%9) {shape = [4, 1]} : (tensor<4xf32>) -> tensor<4x1xf32>
  %11 = "relax.multiply"(%10, %scale) : (tensor<4x1xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %12 = "relax.reshape"(%1) {shape = [4, 1]} : (tensor<4xf32>) -> tensor<4x1xf32>
  %13 = "relax.subtract"(%x, %12) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %14 = "relax.multiply"(%13, %11) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %14 : tensor<4x8xf32>
}
