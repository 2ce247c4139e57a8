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

// A maximum and its position: each lane keeps its own, then the halves of the vector meet.

// CHECK-LABEL: func.func private @argmax
// CHECK-SAME:    rule = "rows"
// CHECK:         scf.for
// CHECK:           vector.load
// CHECK:           arith.select %{{.*}} : vector<8xi1>, vector<8xf32>
// CHECK:           arith.select %{{.*}} : vector<8xi1>, vector<8xi64>
// CHECK:         vector.shuffle %{{.*}} [0, 1, 2, 3]
// CHECK:         vector.shuffle %{{.*}} [4, 5, 6, 7]
// CHECK:         memref.store
func.func @where(%x: tensor<5x640xf32>) -> tensor<5xi64> {
  %0 = "relax.argmax"(%x) {axis = 1 : i64, keepdims = false} : (tensor<5x640xf32>) -> tensor<5xi64>
  return %0 : tensor<5xi64>
}
