// RUN: mirlo-opt %s --simplify | FileCheck %s

// Neutral elements, on either side where the operator commutes.
// CHECK-LABEL: func.func @neutral(
// CHECK-NEXT:    return %arg0
func.func @neutral(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = "relax.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %one = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.add"(%zero, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.subtract"(%0, %zero) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.multiply"(%one, %1) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.divide"(%2, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// Not where the constant makes the result larger, nor where the operator does not commute.
// CHECK-LABEL: func.func @not_neutral(
// CHECK:         "relax.add"
// CHECK:         "relax.subtract"
func.func @not_neutral(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %zero = "relax.constant"() {value = dense<0.0> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %0 = "relax.add"(%x, %zero) : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = "relax.subtract"(%zero, %0) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// Division by a power of two is exact as a multiplication; by another number it would be rounded twice.
// CHECK-LABEL: func.func @reciprocal(
// CHECK:         %[[C:.*]] = "relax.constant"() {value = dense<1.250000e-01>
// CHECK:         "relax.multiply"(%arg0, %[[C]])
// CHECK:         "relax.divide"
func.func @reciprocal(%x: tensor<4xf32>) -> tensor<4xf32> {
  %eight = "relax.constant"() {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %three = "relax.constant"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.divide"(%x, %eight) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.divide"(%0, %three) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @powers(
// CHECK:         %[[A:.*]] = "relax.square"(%arg0)
// CHECK:         %[[B:.*]] = "relax.sqrt"(%[[A]])
// CHECK:         %[[C:.*]] = "relax.reciprocal"(%[[B]])
// CHECK:         %[[D:.*]] = "relax.square"(%[[C]])
// CHECK:         %[[E:.*]] = "relax.multiply"(%[[D]], %[[C]])
// CHECK:         "relax.power"(%[[E]]
func.func @powers(%x: tensor<4xf32>) -> tensor<4xf32> {
  %two = "relax.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %minus = "relax.constant"() {value = dense<-1.0> : tensor<f32>} : () -> tensor<f32>
  %three = "relax.constant"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
  %seven = "relax.constant"() {value = dense<0.7> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.power"(%x, %two) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.power"(%0, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = "relax.power"(%1, %minus) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = "relax.power"(%2, %three) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = "relax.power"(%3, %seven) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// CHECK-LABEL: func.func @condition(
// CHECK-NEXT:    return %arg1
func.func @condition(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.constant"() {value = dense<false> : tensor<4xi1>} : () -> tensor<4xi1>
  %1 = "relax.where"(%0, %x, %y) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.cast"(%1) {dtype = f32} : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
