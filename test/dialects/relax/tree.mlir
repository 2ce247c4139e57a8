// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// CHECK-LABEL: func.func @tree(
func.func @tree(%x: tensor<?x3xf32, #relax.dims<["n", 3]>>, %keys: tensor<5xf32>, %thresholds: tensor<4xf32>, %nodes: tensor<4x4xi64>, %roots: tensor<2xi64>) {
  // CHECK: "relax.find_sorted"{{.*}} -> tensor<?x3xi64, #relax.dims<["n", 3]>>
  %0 = "relax.find_sorted"(%x, %keys) : (tensor<?x3xf32, #relax.dims<["n", 3]>>, tensor<5xf32>) -> tensor<?x3xi64, #relax.dims<["n", 3]>>
  // CHECK: "relax.tree_leaves"{{.*}} -> tensor<?x2xi64, #relax.dims<["n", 2]>>
  %1 = "relax.tree_leaves"(%x, %thresholds, %nodes, %roots) : (tensor<?x3xf32, #relax.dims<["n", 3]>>, tensor<4xf32>, tensor<4x4xi64>, tensor<2xi64>) -> tensor<?x2xi64, #relax.dims<["n", 2]>>
  return
}
