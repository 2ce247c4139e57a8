// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Five keys: steps of four, two and one.
// CHECK-LABEL: func.func @find
// CHECK:       func.func private @find_sorted
// CHECK:       "tir.block"
// CHECK-COUNT-3: tensor.extract
// CHECK:       name = "find_sorted"
func.func @find(%x: tensor<6xi32>, %keys: tensor<5xi32>) -> tensor<6xi64> {
  %0 = "relax.find_sorted"(%x, %keys) : (tensor<6xi32>, tensor<5xi32>) -> tensor<6xi64>
  return %0 : tensor<6xi64>
}

// -----

// CHECK-LABEL: func.func @tree
// CHECK:       func.func private @tree_ensemble
// CHECK:       scf.while
func.func @tree(%x: tensor<8x3xf32>, %t: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>, %w: tensor<6x1xf32>) -> tensor<8x1xf32> {
  %0 = "relax.tree_ensemble"(%x, %t, %nodes, %roots, %w) : (tensor<8x3xf32>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x1xf32>) -> tensor<8x1xf32>
  return %0 : tensor<8x1xf32>
}
