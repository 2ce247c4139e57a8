// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// CHECK-LABEL: func.func @tree(
func.func @tree(%x: tensor<?x3xf32, #relax.dims<["n", 3]>>, %keys: tensor<5xf32>, %thresholds: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>, %weights: tensor<6x5xf64>) {
  // CHECK: "relax.find_sorted"{{.*}} -> tensor<?x3xi64, #relax.dims<["n", 3]>>
  %0 = "relax.find_sorted"(%x, %keys) : (tensor<?x3xf32, #relax.dims<["n", 3]>>, tensor<5xf32>) -> tensor<?x3xi64, #relax.dims<["n", 3]>>
  // CHECK: "relax.tree_ensemble"{{.*}} -> tensor<?x5xf64, #relax.dims<["n", 5]>>
  %1 = "relax.tree_ensemble"(%x, %thresholds, %nodes, %roots, %weights) : (tensor<?x3xf32, #relax.dims<["n", 3]>>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>, tensor<6x5xf64>) -> tensor<?x5xf64, #relax.dims<["n", 5]>>
  return
}
