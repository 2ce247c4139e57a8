// RUN: mirlo-opt %s --simplify --fold-constant --convert-layout --simplify | FileCheck %s

// Sizes that are not known: what needs no number is done, what needs one is left alone.

// CHECK-LABEL: func.func @arithmetic(
// CHECK-NEXT:    %[[S:.*]] = "relax.square"(%arg0)
// CHECK-NEXT:    return %[[S]]
func.func @arithmetic(%x: tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>> {
  %one = "relax.constant"() {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %two = "relax.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.multiply"(%x, %one) : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<4xf32>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  %1 = "relax.power"(%0, %two) : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<f32>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  return %1 : tensor<?x4xf32, #relax.dims<["n", 4]>>
}

// CHECK-LABEL: func.func @shapes(
// CHECK-NEXT:    %[[R:.*]] = "relax.reshape"(%arg0) {shape = ["n", 4]}
// CHECK-NEXT:    %[[V:.*]] = "relax.reshape"(%arg1)
// CHECK-NEXT:    return %[[R]], %[[V]]
func.func @shapes(%x: tensor<?x1x4xf32, #relax.dims<["n", 1, 4]>>, %y: tensor<?x1x4xf32, #relax.dims<["n", 1, 4]>>)
    -> (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<1x?x4xf32, #relax.dims<[1, "n", 4]>>) {
  %0 = "relax.squeeze"(%x) {axes = array<i64: 1>} : (tensor<?x1x4xf32, #relax.dims<["n", 1, 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  %1 = "relax.permute"(%y) {axes = array<i64: 1, 0, 2>} : (tensor<?x1x4xf32, #relax.dims<["n", 1, 4]>>) -> tensor<1x?x4xf32, #relax.dims<[1, "n", 4]>>
  return %0, %1 : tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<1x?x4xf32, #relax.dims<[1, "n", 4]>>
}

// CHECK-LABEL: func.func @products(
// CHECK:         "relax.matmul"(%arg0, %{{.*}}) : (tensor<?x3x4xf32, #relax.dims<["n", 3, 4]>>, tensor<4x2xf32>)
// CHECK-NEXT:    %[[R:.*]] = "relax.relu"
// CHECK-NEXT:    "relax.reshape"(%[[R]])
func.func @products(%x: tensor<?x3x4xf32, #relax.dims<["n", 3, 4]>>) -> tensor<?x1x3x2xf32, #relax.dims<["n", 1, 3, 2]>> {
  %w = "relax.constant"() {value = dense<1.0> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
  %two = "relax.constant"() {value = dense<[2.0, 3.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<?x3x4xf32, #relax.dims<["n", 3, 4]>>, tensor<4x2xf32>) -> tensor<?x3x2xf32, #relax.dims<["n", 3, 2]>>
  %1 = "relax.multiply"(%0, %two) : (tensor<?x3x2xf32, #relax.dims<["n", 3, 2]>>, tensor<2xf32>) -> tensor<?x3x2xf32, #relax.dims<["n", 3, 2]>>
  %2 = "relax.expand_dims"(%1) {axes = array<i64: 1>} : (tensor<?x3x2xf32, #relax.dims<["n", 3, 2]>>) -> tensor<?x1x3x2xf32, #relax.dims<["n", 1, 3, 2]>>
  %3 = "relax.relu"(%2) : (tensor<?x1x3x2xf32, #relax.dims<["n", 1, 3, 2]>>) -> tensor<?x1x3x2xf32, #relax.dims<["n", 1, 3, 2]>>
  return %3 : tensor<?x1x3x2xf32, #relax.dims<["n", 1, 3, 2]>>
}

// CHECK-LABEL: func.func @convolution(
// CHECK:         %[[C:.*]] = "relax.conv"(%{{.*}}, %{{.*}}, %{{.*}}) {data_layout = "N*C"
// CHECK:         %[[S:.*]] = "relax.strided_slice"
// CHECK:         %[[R:.*]] = "relax.reshape"(%[[S]]) {shape = ["n", "h", 1, 1]}
// CHECK:         "relax.add"(%[[C]], %[[R]])
func.func @convolution(%x: tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>) -> tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>> {
  %w = "relax.constant"() {value = dense<1.0> : tensor<1x1x1x1xf32>} : () -> tensor<1x1x1x1xf32>
  %c = "relax.constant"() {value = dense<3.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>, tensor<1x1x1x1xf32>) -> tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>
  %1 = "relax.batch_norm"(%0, %c, %c, %c, %c) : (tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>
  %2:2 = "relax.split"(%x) {axis = 3 : i64, sizes = [7, 1], resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>) -> (tensor<?x1x?x7xf32, #relax.dims<["n", 1, "h", 7]>>, tensor<?x1x?x1xf32, #relax.dims<["n", 1, "h", 1]>>)
  %3 = "relax.add"(%1, %2#1) : (tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>, tensor<?x1x?x1xf32, #relax.dims<["n", 1, "h", 1]>>) -> tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>
  return %3 : tensor<?x1x?x8xf32, #relax.dims<["n", 1, "h", 8]>>
}
