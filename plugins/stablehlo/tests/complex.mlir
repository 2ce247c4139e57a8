// RUN: mirlo import %s | FileCheck %s

// A complex tensor is two real ones; inputs and results hold both in a last dim.
// CHECK:      func.func @main(%arg0: tensor<3x2xf32> {relax.name = "z"}{{.*}}) -> (tensor<3x2xf32>
// CHECK-NEXT:   %[[P:.*]]:2 = "relax.split"(%arg0)
// CHECK-NEXT:   %[[R:.*]] = "relax.reshape"(%[[P]]#0)
// CHECK-NEXT:   %[[I:.*]] = "relax.reshape"(%[[P]]#1)
// CHECK-NEXT:   %[[R2:.*]] = "relax.add"(%[[R]], %[[R]])
// CHECK-NEXT:   %[[I2:.*]] = "relax.add"(%[[I]], %[[I]])
// CHECK-NEXT:   %[[RR:.*]] = "relax.multiply"(%[[R2]], %[[R]])
// CHECK-NEXT:   %[[II:.*]] = "relax.multiply"(%[[I2]], %[[I]])
// CHECK-NEXT:   %[[RE:.*]] = "relax.subtract"(%[[RR]], %[[II]])
// CHECK-NEXT:   %[[RI:.*]] = "relax.multiply"(%[[R2]], %[[I]])
// CHECK-NEXT:   %[[IR:.*]] = "relax.multiply"(%[[I2]], %[[R]])
// CHECK-NEXT:   %[[IM:.*]] = "relax.add"(%[[RI]], %[[IR]])
// CHECK-NEXT:   %[[Y:.*]] = "relax.stack"(%[[RE]], %[[IM]])
// CHECK-NEXT:   return %[[Y]]
func.func @main(%z: tensor<3xcomplex<f32>> {mlir.name = "z"}) -> tensor<3xcomplex<f32>> {
  %0 = stablehlo.add %z, %z : tensor<3xcomplex<f32>>
  %1 = stablehlo.multiply %0, %z : tensor<3xcomplex<f32>>
  return %1 : tensor<3xcomplex<f32>>
}
