// Of two graphs that nothing calls, neither is known to be the model: passes over the model leave both alone.
// RUN: mirlo-opt %s --tile-batch | FileCheck %s
// CHECK: func.func @f
// CHECK: func.func @g
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.negative"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
