// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// CHECK-LABEL: func.func @erased
// CHECK: "relax.erase_dims"(%{{.*}}) {axes = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<?x3xf32>
// CHECK: "relax.match_dims"(%{{.*}}) {symbols = ["n"]} : (tensor<?x3xf32>) -> tensor<?x3xf32, #relax.dims<["n", 3]>>
func.func @erased(%x: tensor<2x3xf32>) {
  %0 = "relax.erase_dims"(%x) {axes = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<?x3xf32>
  %1 = "relax.match_dims"(%0) {symbols = ["n"]} : (tensor<?x3xf32>) -> tensor<?x3xf32, #relax.dims<["n", 3]>>
  return
}
