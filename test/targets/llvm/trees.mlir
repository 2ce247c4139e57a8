// RUN: mirlo-opt %s --legalize=target=llvm | FileCheck %s

// The next node is one load, whose column the comparison gives: LLVM makes branches of a choice between two loads. Trees
// are added in order.
// CHECK-LABEL:   func.func private @tree_ensemble
// CHECK-COUNT-8: memref.alloca
// CHECK:         scf.while
// CHECK:         %[[NODE:.*]] = arith.minui
// CHECK:         %[[HOLDS:.*]] = arith.cmpf ole
// CHECK-NEXT:    %[[ONE:.*]] = arith.extui %[[HOLDS]] : i1 to i32
// CHECK-NEXT:    %[[SUM:.*]] = arith.subi %{{.*}}, %[[ONE]] : i32
// CHECK-NEXT:    %[[COLUMN:.*]] = arith.index_cast %[[SUM]] : i32 to index
// CHECK-NEXT:    %[[NEXT:.*]] = memref.load %arg2[%{{.*}}, %[[COLUMN]]]
// CHECK:         arith.select %{{.*}}, %[[NEXT]], %{{.*}} : i64
// CHECK-COUNT-8: arith.addf
func.func @tree(%x: tensor<7x3xf32>, %t: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<8xi64>, %w: tensor<6x1xf32>) -> tensor<7x1xf32> {
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) {mode = 0 : i64} : (tensor<7x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<8xi64>, tensor<6x1xf32>) -> tensor<7x1xf32>
  return %0 : tensor<7x1xf32>
}
