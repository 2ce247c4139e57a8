// RUN: mirlo-opt %s --fold-constant=grow=64 | FileCheck %s

// A result that exceeds its operands by more than 64 bytes is computed in each call, unless that takes many operations
// for each element: those it is computed from are then folded with it.

// CHECK-LABEL: func.func @few
// CHECK:         "relax.add"
// CHECK:         "relax.relu"
func.func @few() -> tensor<8x16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<8x1xf32>} : () -> tensor<8x1xf32>
  %1 = "relax.constant"() {value = dense<2.0> : tensor<16xf32>} : () -> tensor<16xf32>
  %2 = "relax.add"(%0, %1) : (tensor<8x1xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %3 = "relax.relu"(%2) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %3 : tensor<8x16xf32>
}

// CHECK-LABEL: func.func @many
// CHECK-NEXT:    %[[C:.*]] = "relax.constant"()
// CHECK-NEXT:    return %[[C]]
func.func @many() -> tensor<8x16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<8x1xf32>} : () -> tensor<8x1xf32>
  %1 = "relax.constant"() {value = dense<2.0> : tensor<16xf32>} : () -> tensor<16xf32>
  %2 = "relax.add"(%0, %1) : (tensor<8x1xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %3 = "relax.tanh"(%2) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %4 = "relax.tanh"(%3) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}

// 16 times the bytes are too many for any.
// CHECK-LABEL: func.func @too_large
// CHECK:         "relax.tanh"
// CHECK:         "relax.tanh"
func.func @too_large() -> tensor<80x16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<80x1xf32>} : () -> tensor<80x1xf32>
  %1 = "relax.constant"() {value = dense<2.0> : tensor<16xf32>} : () -> tensor<16xf32>
  %2 = "relax.add"(%0, %1) : (tensor<80x1xf32>, tensor<16xf32>) -> tensor<80x16xf32>
  %3 = "relax.tanh"(%2) : (tensor<80x16xf32>) -> tensor<80x16xf32>
  %4 = "relax.tanh"(%3) : (tensor<80x16xf32>) -> tensor<80x16xf32>
  return %4 : tensor<80x16xf32>
}
