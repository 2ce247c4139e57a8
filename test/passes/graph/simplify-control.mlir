// RUN: mirlo-opt %s --simplify --convert-layout | FileCheck %s

// Rules work within loops and branches, but what is computed before a loop does not move into it.
// CHECK-LABEL: func.func @loop(
// CHECK:         %[[M:.*]] = "relax.matmul"(%arg0
// CHECK:         scf.for
// CHECK-NOT:       "relax.matmul"
// CHECK:           "relax.multiply"(%[[M]]
// CHECK:           "relax.square"
// CHECK:           scf.yield
func.func @loop(%x: tensor<4x2xf32>, %rounds: index) -> tensor<4x2xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %w = "relax.constant"() {value = dense<1.0> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
  %factor = "relax.constant"() {value = dense<[2.0, 3.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %two = "relax.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.matmul"(%x, %w) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
  %1 = scf.for %i = %zero to %rounds step %one iter_args(%carried = %x) -> tensor<4x2xf32> {
    %2 = "relax.multiply"(%0, %factor) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
    %3 = "relax.power"(%carried, %two) : (tensor<4x2xf32>, tensor<f32>) -> tensor<4x2xf32>
    %4 = "relax.add"(%2, %3) : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
    scf.yield %4 : tensor<4x2xf32>
  }
  return %1 : tensor<4x2xf32>
}

// The permute of a convolution before a loop stays before it.
// CHECK-LABEL: func.func @layout(
// CHECK:         "relax.conv"
// CHECK:         "relax.permute"
// CHECK:         scf.for
// CHECK-NOT:       "relax.permute"
// CHECK:           scf.yield
func.func @layout(%x: tensor<1x3x8x8xf32>, %rounds: index) -> tensor<1x4x8x8xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x8x8xf32>
  %1 = scf.for %i = %zero to %rounds step %one iter_args(%carried = %0) -> tensor<1x4x8x8xf32> {
    %2 = "relax.relu"(%0) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
    %3 = "relax.add"(%carried, %2) : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
    scf.yield %3 : tensor<1x4x8x8xf32>
  }
  return %1 : tensor<1x4x8x8xf32>
}
