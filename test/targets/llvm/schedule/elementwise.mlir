// RUN: mirlo-opt %s --legalize --schedule=machine=avx512 | FileCheck %s
// RUN: mirlo-opt %s --legalize --schedule=machine=avx2 | FileCheck %s --check-prefix=AVX2

// Vectors lie along the output's memory; what has the same element for all lanes is one scalar. The rest
// of a row is under a mask.

// CHECK-LABEL: func.func private @multiply
// CHECK-SAME:    (%[[X:.*]]: memref<6x21xf32>, %[[S:.*]]: memref<6x1xf32>, %[[Y:.*]]: memref<6x21xf32>)
// CHECK-SAME:    rule = "elementwise"
// CHECK:       scf.for %[[I:.*]] = %{{.*}} to %c6
// CHECK:         %[[LANES:.*]] = vector.load %{{.*}} : memref<126xf32>, vector<16xf32>
// CHECK:         %[[SCALE:.*]] = memref.load %{{.*}}[%[[I]]] : memref<6xf32>
// CHECK:         %[[SPLAT:.*]] = vector.broadcast %[[SCALE]] : f32 to vector<16xf32>
// CHECK:         %[[PRODUCT:.*]] = arith.mulf %[[LANES]], %[[SPLAT]]
// CHECK:         vector.store %[[PRODUCT]]
// CHECK:         %[[MASK:.*]] = vector.constant_mask [5] : vector<8xi1>
// CHECK:         vector.maskedload %{{.*}}, %[[MASK]]
// CHECK:         vector.maskedstore
// CHECK:       {tir.parallel}

// AVX2-LABEL: func.func private @multiply
// AVX2-COUNT-2: vector.store %{{.*}} : memref<126xf32>, vector<8xf32>
// AVX2:         vector.constant_mask [5] : vector<8xi1>
func.func @scale(%x: tensor<6x21xf32>, %s: tensor<6x1xf32>) -> tensor<6x21xf32> {
  %0 = "relax.multiply"(%x, %s) : (tensor<6x21xf32>, tensor<6x1xf32>) -> tensor<6x21xf32>
  return %0 : tensor<6x21xf32>
}

// Loops over contiguous memory become one. Of long computations several go on at once, in vectors of several registers.

// CHECK-LABEL: func.func private @exp
// CHECK:       scf.for %{{.*}} = %c0 to %c4 step %c1
// CHECK:       "tir.exp"(%{{.*}}) : (vector<64xf32>)
// AVX2-LABEL: func.func private @exp
// AVX2:       scf.for %{{.*}} = %c0 to %c16 step %c1
// AVX2:       "tir.exp"(%{{.*}}) : (vector<16xf32>)
// CHECK-NOT:   scf.for
// CHECK:       return
func.func @one_loop(%x: tensor<4x8x8xf32>) -> tensor<4x8x8xf32> {
  %0 = "relax.exp"(%x) : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
  return %0 : tensor<4x8x8xf32>
}

// Loops are cut at the joint of a concatenation: two copies, nothing is asked.

// CHECK-LABEL: func.func private @concat
// CHECK-SAME:    pieces = 2
// CHECK-NOT:     select
// CHECK:         scf.for
// CHECK:           vector.load
// CHECK:           vector.store
// CHECK:         scf.for
// CHECK:           vector.load
// CHECK:           vector.store
// CHECK:         return
func.func @join(%x: tensor<3x80xf32>, %y: tensor<5x80xf32>) -> tensor<8x80xf32> {
  %0 = "relax.concat"(%x, %y) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (tensor<3x80xf32>, tensor<5x80xf32>) -> tensor<8x80xf32>
  return %0 : tensor<8x80xf32>
}

// Rows of a table are copied: the index is computed once for each.

// CHECK-LABEL: func.func private @gather
// CHECK:       scf.for
// CHECK:         memref.load %{{.*}} : memref<7xi64>
// CHECK:         vector.load %{{.*}} : memref<1600xf32>, vector<16xf32>
// CHECK-NOT:     gather
// CHECK:       return
func.func @embed(%table: tensor<50x32xf32>, %ids: tensor<7xi64>) -> tensor<7x32xf32> {
  %0 = "relax.gather"(%table, %ids) {axis = 0 : i64} : (tensor<50x32xf32>, tensor<7xi64>) -> tensor<7x32xf32>
  return %0 : tensor<7x32xf32>
}
