// RUN: mirlo-opt %s --simplify | FileCheck %s
// RUN: mirlo-opt %s --simplify=explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

// CHECK-LABEL: func.func @silu(
// CHECK-NEXT:    %[[A:.*]] = "relax.silu"(%arg0)
// CHECK-NEXT:    %[[B:.*]] = "relax.silu"(%arg0)
// CHECK-NEXT:    %[[C:.*]] = "relax.sigmoid"(%arg0)
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]]
func.func @silu(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %one = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.sigmoid"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.multiply"(%0, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.negative"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.exp"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.add"(%3, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = "relax.divide"(%x, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.divide"(%one, %4) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  return %1, %5, %6 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @mish(
// CHECK-NEXT:    "relax.mish"(%arg0)
func.func @mish(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.softplus"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.multiply"(%x, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// The three ways in which exporters write it, and its gate alone.
// CHECK-LABEL: func.func @hard_swish(
// CHECK-NEXT:    %[[A:.*]] = "relax.hard_swish"(%arg0)
// CHECK-NEXT:    %[[G:.*]] = "relax.hard_sigmoid"(%arg0) {alpha = 0.16{{.*}} : f64}
// CHECK-NEXT:    %[[B:.*]] = "relax.hard_swish"(%arg0)
// CHECK-NEXT:    %[[C:.*]] = "relax.hard_swish"(%arg0)
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]], %[[G]]
func.func @hard_swish(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %three = "relax.constant"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
  %six = "relax.constant"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.add"(%x, %three) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.clip"(%0) {min = 0.0 : f64, max = 6.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.multiply"(%x, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.divide"(%2, %six) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = "relax.divide"(%1, %six) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = "relax.multiply"(%x, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.hard_sigmoid"(%x) {alpha = 0.1666666716337204 : f64, beta = 0.5 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  %7 = "relax.multiply"(%x, %6) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3, %5, %7, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// The sigmoid of something else, other bounds, another slope.
// WHY:           silu: it must be the value that 'x' is elsewhere in the pattern
// WHY:           hard_swish: expected max = 6 (found=3.0)
// CHECK-LABEL: func.func @declined(
// CHECK-NOT:     "relax.silu"
// CHECK-NOT:     "relax.hard_swish"
// CHECK:         return
func.func @declined(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %three = "relax.constant"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
  %six = "relax.constant"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.sigmoid"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.multiply"(%0, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%x, %three) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = "relax.clip"(%2) {min = 0.0 : f64, max = 3.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.multiply"(%x, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = "relax.divide"(%4, %six) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %6 = "relax.hard_sigmoid"(%x) {alpha = 0.2 : f64, beta = 0.5 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  %7 = "relax.multiply"(%x, %6) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1, %5, %7 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
