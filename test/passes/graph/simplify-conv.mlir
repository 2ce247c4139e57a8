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

// A window of one element of one channel is a factor for each channel.
// CHECK-LABEL: func.func @single(
// CHECK-DAG:     %[[W:.*]] = "relax.reshape"(%arg1) {shape = {{.*}}4, 1, 1]
// CHECK-DAG:     %[[B:.*]] = "relax.reshape"(%arg2) {shape = {{.*}}4, 1, 1]
// CHECK:         %[[P:.*]] = "relax.multiply"(%arg0, %[[W]])
// CHECK-NEXT:    %[[S:.*]] = "relax.add"(%[[P]], %[[B]])
// CHECK-NEXT:    return %[[S]]
func.func @single(%x: tensor<1x4x8x8xf32>, %w: tensor<4x1x1x1xf32>, %b: tensor<4xf32>) -> tensor<1x4x8x8xf32> {
  %0 = "relax.conv"(%x, %w, %b) {groups = 4 : i64} : (tensor<1x4x8x8xf32>, tensor<4x1x1x1xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  return %0 : tensor<1x4x8x8xf32>
}

// Not where windows are apart, or a channel has two of them.
// CHECK-LABEL: func.func @apart(
// CHECK-COUNT-2: "relax.conv"
func.func @apart(%x: tensor<1x4x8x8xf32>, %w: tensor<4x1x1x1xf32>, %v: tensor<8x1x1x1xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x8x8x8xf32>) {
  %0 = "relax.conv"(%x, %w) {groups = 4 : i64, strides = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>, tensor<4x1x1x1xf32>) -> tensor<1x4x4x4xf32>
  %1 = "relax.conv"(%x, %v) {groups = 4 : i64} : (tensor<1x4x8x8xf32>, tensor<8x1x1x1xf32>) -> tensor<1x8x8x8xf32>
  return %0, %1 : tensor<1x4x4x4xf32>, tensor<1x8x8x8xf32>
}
