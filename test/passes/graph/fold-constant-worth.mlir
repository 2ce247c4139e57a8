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

// What only convolutions read is converted whatever its size, also where it is moved first; products read it as it is.
// CHECK-LABEL: func.func @convolutions
// CHECK-NOT:     "relax.cast"
// CHECK:         "relax.conv"
// CHECK:         "relax.conv"
// CHECK:         return
func.func @convolutions(%x: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %0 = "relax.constant"() {value = dense<1.0> : tensor<4x4x3x3xbf16>} : () -> tensor<4x4x3x3xbf16>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<4x4x3x3xbf16>) -> tensor<4x4x3x3xf32>
  %2 = "relax.conv"(%x, %1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x6x6xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  %3 = "relax.permute"(%1) {axes = array<i64: 1, 0, 2, 3>} : (tensor<4x4x3x3xf32>) -> tensor<4x4x3x3xf32>
  %4 = "relax.conv"(%2, %3) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x6x6xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %4 : tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @products
// CHECK:         "relax.cast"
// CHECK:         "relax.matmul"
func.func @products(%x: tensor<4x12xf32>) -> tensor<4x12xf32> {
  %0 = "relax.constant"() {value = dense<1.0> : tensor<12x12xbf16>} : () -> tensor<12x12xbf16>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<12x12xbf16>) -> tensor<12x12xf32>
  %2 = "relax.matmul"(%x, %1) : (tensor<4x12xf32>, tensor<12x12xf32>) -> tensor<4x12xf32>
  return %2 : tensor<4x12xf32>
}

// What is not read by operators of relax, such as a result of the function, is computed in each call as well.
// CHECK-LABEL: func.func @returned
// CHECK:         %[[C:.*]] = "relax.cast"
// CHECK-NEXT:    return %[[C]]
func.func @returned() -> tensor<8x16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<8x16xf16>} : () -> tensor<8x16xf16>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<8x16xf16>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}
