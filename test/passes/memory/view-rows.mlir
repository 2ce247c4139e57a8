// RUN: mirlo-opt %s --view-rows --split-input-file | FileCheck %s

// A slice of a parameter at a position that is known at run time is not copied: the plan computes where it begins.
// CHECK-LABEL: func.func @slice(
// CHECK:         %[[W:.*]] = "relax.constant"() {param = "w"}
// CHECK:         "relax.view_row"(%[[W]], %arg0) : (tensor<8x4x2xf32>, tensor<i64>) -> tensor<4x2xf32>
func.func @slice(%at: tensor<i64>) -> tensor<4x2xf32> {
  %0 = "relax.constant"() {param = "w"} : () -> tensor<8x4x2xf32>
  %1 = "relax.gather"(%0, %at) : (tensor<8x4x2xf32>, tensor<i64>) -> tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}

// -----

// Several positions, another dim, and a tensor that is no parameter are copied.
// CHECK-LABEL: func.func @copies(
// CHECK-NOT:     relax.view_row
func.func @copies(%at: tensor<i64>, %all: tensor<1xi64>, %x: tensor<8x4xf32>) -> (tensor<1x4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.constant"() {param = "w"} : () -> tensor<8x4xf32>
  %1 = "relax.gather"(%0, %all) : (tensor<8x4xf32>, tensor<1xi64>) -> tensor<1x4xf32>
  %2 = "relax.gather"(%0, %at) {axis = 1 : i64} : (tensor<8x4xf32>, tensor<i64>) -> tensor<8xf32>
  %3 = "relax.gather"(%x, %at) : (tensor<8x4xf32>, tensor<i64>) -> tensor<4xf32>
  %4 = "relax.constant"() {value = dense<1.0> : tensor<8x4xf32>} : () -> tensor<8x4xf32>
  %5 = "relax.gather"(%4, %at) : (tensor<8x4xf32>, tensor<i64>) -> tensor<4xf32>
  return %1, %2, %3, %5 : tensor<1x4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<4xf32>
}
