// RUN: mirlo-opt %s --pass-pipeline='builtin.module(once-per-layer{passes="simplify" explain=true})' 2>&1 | FileCheck %s

// Without equal layers the passes run on all operations.
// CHECK:       remark: the passes run on all layers: no operations repeat often enough (layers=8, operations=8)
// CHECK-LABEL: func.func @main
// CHECK-NEXT:    %[[Y:.*]] = "relax.relu"
// CHECK-NEXT:    return %[[Y]]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %2 = "relax.multiply"(%0, %1) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
