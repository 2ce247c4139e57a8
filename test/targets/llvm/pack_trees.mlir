// RUN: mirlo-opt %s --pack-trees='machine=avx512 explain=true' 2>&1 | FileCheck %s

// Two nodes fill a block of records with two that exclude nothing. A batch of 16 rows has one group; no loop follows.
// CHECK:         the ensemble of trees goes from node to node: there are few rows (rows=2)
// CHECK:         the ensemble of trees has masks
// CHECK-LABEL: func.func @few
// CHECK:         "relax.tree_ensemble"
// CHECK-LABEL: func.func @tree
// CHECK-NOT:     "relax.tree_ensemble"
// CHECK:         "relax.call_tir"
// CHECK:         func.func private @tree_ensemble_masks
// CHECK-COUNT-4: arith.cmpf ugt, {{.*}}vector<16xf32>
// CHECK-NOT:     arith.cmpf ugt
// CHECK:         math.ctlz %{{.*}}vector<16xi32>
func.func @few(%x: tensor<2x3xf32>) -> tensor<2x1xf32> {
  %t = "relax.constant"() {value = dense<[0.5, 1.5]> : tensor<2xf32>} : () -> tensor<2xf32>
  %nodes = "relax.constant"() {value = dense<[[0, 0, 1, -1], [2, 0, -2, -3]]> : tensor<2x4xi32>} : () -> tensor<2x4xi32>
  %roots = "relax.constant"() {value = dense<[0]> : tensor<1xi32>} : () -> tensor<1xi32>
  %w = "relax.constant"() {value = dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>} : () -> tensor<3x1xf32>
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) {mode = 0 : i64} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2x4xi32>, tensor<1xi32>, tensor<3x1xf32>) -> tensor<2x1xf32>
  return %0 : tensor<2x1xf32>
}

func.func @tree(%x: tensor<16x3xf32>) -> tensor<16x1xf32> {
  %t = "relax.constant"() {value = dense<[0.5, 1.5]> : tensor<2xf32>} : () -> tensor<2xf32>
  %nodes = "relax.constant"() {value = dense<[[0, 0, 1, -1], [2, 0, -2, -3]]> : tensor<2x4xi32>} : () -> tensor<2x4xi32>
  %roots = "relax.constant"() {value = dense<[0]> : tensor<1xi32>} : () -> tensor<1xi32>
  %w = "relax.constant"() {value = dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>} : () -> tensor<3x1xf32>
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) {mode = 0 : i64} : (tensor<16x3xf32>, tensor<2xf32>, tensor<2x4xi32>, tensor<1xi32>, tensor<3x1xf32>) -> tensor<16x1xf32>
  return %0 : tensor<16x1xf32>
}
