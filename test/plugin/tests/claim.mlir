// RUN: mirlo-opt %s --load-pass-plugin %plugin --npu-claim --remove-dead | FileCheck %s

// A product and the relu after it are one operation of the unit; a product of other sizes stays.
// CHECK-LABEL: func.func @claimed(
// CHECK:         "npu.gemm"(%arg0, %arg0) {relu = true}
// CHECK-NOT:     relax
func.func @claimed(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "relax.matmul"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "relax.relu"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @left(
// CHECK:         "relax.matmul"
func.func @left(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = "relax.matmul"(%x, %x) : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  %1 = "relax.relu"(%0) : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return %1 : tensor<3x3xf32>
}
