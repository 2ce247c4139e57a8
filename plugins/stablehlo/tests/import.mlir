// RUN: mirlo import %s | FileCheck %s

// Operands are not expanded where relax broadcasts, calls are replaced by their functions, and a composite that relax
// has is an operator.
// CHECK:      func.func @main(%arg0: tensor<2x3xf32> {relax.name = "x"}{{.*}}, %arg1: tensor<3xf32> {relax.name = "arg1"}
// CHECK-NEXT:   %[[A:.*]] = "relax.add"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:   %[[N:.*]] = "relax.negative"(%[[A]])
// CHECK-NEXT:   %[[E:.*]] = "relax.erf"(%[[N]])
// CHECK-NEXT:   return %[[E]]
func.func @main(%x: tensor<2x3xf32> {mlir.name = "x"}, %bias: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.add %x, %0 : tensor<2x3xf32>
  %2 = call @inner(%1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = stablehlo.composite "chlo.erf" %2 {decomposition = @erf} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}
func.func private @inner(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.negate %x : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
func.func private @erf(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  return %x : tensor<2x3xf32>
}
