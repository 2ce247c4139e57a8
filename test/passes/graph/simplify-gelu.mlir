// RUN: mirlo-opt %s --simplify | FileCheck %s

// GELU in the order of BERT's exports.
// CHECK-LABEL: func.func @erf(
// CHECK-NEXT:    %[[G:.*]] = "relax.gelu"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:    return %[[G]]
func.func @erf(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = "relax.constant"() {value = dense<1.41421354> : tensor<f32>} : () -> tensor<f32>
  %one = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.divide"(%x, %root) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.erf"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%1, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = "relax.multiply"(%x, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.multiply"(%3, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// With tanh, in that of GPT-2's; x itself is a product.
// CHECK-LABEL: func.func @tanh(
// CHECK-NEXT:    %[[X:.*]] = "relax.multiply"(%arg0, %arg1)
// CHECK-NEXT:    %[[G:.*]] = "relax.gelu"(%[[X]]) {approximate = "tanh"}
// CHECK-NEXT:    return %[[G]]
func.func @tanh(%y: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %one = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %three = "relax.constant"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
  %small = "relax.constant"() {value = dense<4.471500e-02> : tensor<f32>} : () -> tensor<f32>
  %scale = "relax.constant"() {value = dense<0.797884583> : tensor<f32>} : () -> tensor<f32>
  %x = "relax.multiply"(%y, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %0 = "relax.multiply"(%x, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.power"(%x, %three) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = "relax.multiply"(%1, %small) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = "relax.add"(%x, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.multiply"(%3, %scale) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = "relax.tanh"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.add"(%5, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %7 = "relax.multiply"(%0, %6) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %7 : tensor<4xf32>
}

// Another number in the error function, or another factor: no GELU.
// CHECK-LABEL: func.func @declined(
// CHECK-NOT:     "relax.gelu"
// CHECK:         return
func.func @declined(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %root = "relax.constant"() {value = dense<1.41421354> : tensor<f32>} : () -> tensor<f32>
  %one = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.erf"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.add"(%0, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = "relax.multiply"(%x, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.multiply"(%2, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = "relax.divide"(%x, %root) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = "relax.erf"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.add"(%5, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %7 = "relax.multiply"(%y, %6) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %8 = "relax.multiply"(%7, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %3, %8 : tensor<4xf32>, tensor<4xf32>
}
