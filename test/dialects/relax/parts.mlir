// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Tensors of which ranks have parts.

// CHECK-LABEL: func.func @parts(
func.func @parts(%x: tensor<?x8xf32, #relax.dims<["4*batch", 8]>>, %y: tensor<f32>) {
  // CHECK: "relax.to_parts"(%{{.*}}) {order = array<i64: 0, 2, 1, 3>, parts = array<i64: 2, 2>, ranks = 4 : i64} : ({{.*}}) -> tensor<?x4xf32, #relax.dims<["2*batch", 4]>>
  %0 = "relax.to_parts"(%x) {order = array<i64: 0, 2, 1, 3>, parts = array<i64: 2, 2>, ranks = 4 : i64} : (tensor<?x8xf32, #relax.dims<["4*batch", 8]>>) -> tensor<?x4xf32, #relax.dims<["2*batch", 4]>>
  // CHECK: "relax.from_parts"(%{{.*}}) {order = array<i64: 0, 2, 1, 3>, parts = array<i64: 1, 2>, ranks = 4 : i64} : ({{.*}}) -> tensor<?x8xf32, #relax.dims<["2*batch", 8]>>
  %1 = "relax.from_parts"(%0) {order = array<i64: 0, 2, 1, 3>, parts = array<i64: 1, 2>, ranks = 4 : i64} : (tensor<?x4xf32, #relax.dims<["2*batch", 4]>>) -> tensor<?x8xf32, #relax.dims<["2*batch", 8]>>
  // CHECK: "relax.to_parts"(%{{.*}}) {order = array<i64: 0, 1>, parts = array<i64>, ranks = 2 : i64} : (tensor<f32>) -> tensor<f32>
  %2 = "relax.to_parts"(%y) {order = array<i64: 0, 1>, parts = array<i64>, ranks = 2 : i64} : (tensor<f32>) -> tensor<f32>
  return
}
