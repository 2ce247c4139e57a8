// RUN: mirlo-opt %s --simplify | FileCheck %s

// Zeros around an image are the padding of the convolution that reads it.
// CHECK-LABEL: func.func @zeros(
// CHECK-NEXT:    "relax.conv"(%arg0, %arg1) {padding = array<i64: 1, 0, 2, 3>, strides = array<i64: 2, 2>}
// CHECK-NEXT:    return
func.func @zeros(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) -> tensor<1x4x5x5xf32> {
  %0 = "relax.pad"(%x) {pads = array<i64: 0, 0, 0, 0, 0, 0, 1, 3>} : (tensor<1x3x8x8xf32>) -> tensor<1x3x9x11xf32>
  %1 = "relax.conv"(%0, %w) {padding = array<i64: 1, 0, 1, 0>, strides = array<i64: 2, 2>} : (tensor<1x3x9x11xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x5x5xf32>
  return %1 : tensor<1x4x5x5xf32>
}

// Another number, or more channels, are not.
// CHECK-LABEL: func.func @declined(
// CHECK-COUNT-2: "relax.pad"
func.func @declined(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %v: tensor<4x4x3x3xf32>) -> (tensor<1x4x6x7xf32>, tensor<1x4x6x6xf32>) {
  %0 = "relax.pad"(%x) {pads = array<i64: 0, 0, 0, 0, 0, 0, 0, 1>, value = 1.0 : f64} : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x9xf32>
  %1 = "relax.conv"(%0, %w) : (tensor<1x3x8x9xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x7xf32>
  %2 = "relax.pad"(%x) {pads = array<i64: 0, 0, 0, 0, 0, 1, 0, 0>} : (tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = "relax.conv"(%2, %v) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %1, %3 : tensor<1x4x6x7xf32>, tensor<1x4x6x6xf32>
}
