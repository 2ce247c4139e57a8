// RUN: mirlo-opt %s --legalize --schedule=machine=avx512 | FileCheck %s

// A softmax walks three times over each row: for the maximum, for the powers and their sum, for the quotients. Totals stay
// in registers; the powers lie where the result will be.

// CHECK-LABEL: func.func private @softmax
// CHECK-SAME:    (%{{.*}}: memref<4x8x32xf32>, %[[OUT:.*]]: memref<4x8x32xf32>)
// CHECK-SAME:    rows = array<i64: 32>, rule = "rows", walks = 3
// CHECK-NOT:     alloca
// CHECK:       scf.for %{{.*}} = %c0 to %c32
// CHECK:         %[[PEAKS:.*]] = arith.maximumf %{{.*}} : vector<16xf32>
// CHECK:         vector.reduction <maximumf>
// CHECK:         %[[SHIFTED:.*]] = arith.subf %{{.*}} : vector<16xf32>
// CHECK:         %[[POWERS:.*]] = "tir.exp"(%[[SHIFTED]])
// CHECK:         vector.store %[[POWERS]]
// CHECK:         arith.addf %{{.*}}, %[[POWERS]]
// CHECK:         %[[LANES:.*]] = vector.reduction <add>
// CHECK:         %[[TOTAL:.*]] = arith.addf %{{.*}}, %[[LANES]]
// CHECK:         %[[SPLAT:.*]] = vector.broadcast %[[TOTAL]] : f32 to vector<16xf32>
// CHECK:         arith.divf %{{.*}}, %[[SPLAT]]
// CHECK:         vector.store
// CHECK:       {tir.parallel}
func.func @attention(%x: tensor<4x8x32xf32>) -> tensor<4x8x32xf32> {
  %0 = "relax.softmax"(%x) {axis = -1 : i64} : (tensor<4x8x32xf32>) -> tensor<4x8x32xf32>
  return %0 : tensor<4x8x32xf32>
}

// The position of a maximum: one walk for the maximum, one for the first element that is equal to it.

// CHECK-LABEL: func.func private @argmax
// CHECK-SAME:    rule = "rows", walks = 3
// CHECK:         vector.reduction <maximumf>
// CHECK:         %[[EQUAL:.*]] = arith.cmpf oeq, %{{.*}} : vector<16xf32>
// CHECK:         arith.select %{{.*}} : vector<16xi1>, vector<16xi32>
// CHECK:         vector.reduction <minsi>
// CHECK:         memref.store
func.func @where(%x: tensor<5x640xf32>) -> tensor<5xi64> {
  %0 = "relax.argmax"(%x) {axis = 1 : i64, keepdims = false} : (tensor<5x640xf32>) -> tensor<5xi64>
  return %0 : tensor<5xi64>
}
