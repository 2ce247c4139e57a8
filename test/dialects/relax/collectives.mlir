// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Exchanges between ranks.

// CHECK-LABEL: func.func @collectives(
func.func @collectives(%x: tensor<?x8xf32, #relax.dims<["batch", 8]>>, %y: tensor<?x4xi1, #relax.dims<["2*rows", 4]>>) {
  // CHECK: "relax.all_reduce"(%{{.*}}) {ranks = 4 : i64} : ({{.*}}) -> tensor<?x8xf32, #relax.dims<["batch", 8]>>
  %0 = "relax.all_reduce"(%x) {ranks = 4 : i64} : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x8xf32, #relax.dims<["batch", 8]>>
  // CHECK: "relax.all_gather"(%{{.*}}) {axis = 0 : i64, ranks = 4 : i64} : ({{.*}}) -> tensor<?x8xf32, #relax.dims<["4*batch", 8]>>
  %1 = "relax.all_gather"(%x) {axis = 0 : i64, ranks = 4 : i64} : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x8xf32, #relax.dims<["4*batch", 8]>>
  // CHECK: "relax.reduce_scatter"(%{{.*}}) {ranks = 4 : i64} : ({{.*}}) -> tensor<?x2xf32, #relax.dims<["batch", 2]>>
  %2 = "relax.reduce_scatter"(%x) {ranks = 4 : i64} : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x2xf32, #relax.dims<["batch", 2]>>
  // CHECK: "relax.all_to_all"(%{{.*}}) {concat_axis = 1 : i64, ranks = 2 : i64, split_axis = 0 : i64} : ({{.*}}) -> tensor<?x8xi1, #relax.dims<["rows", 8]>>
  %3 = "relax.all_to_all"(%y) {concat_axis = 1 : i64, ranks = 2 : i64, split_axis = 0 : i64} : (tensor<?x4xi1, #relax.dims<["2*rows", 4]>>) -> tensor<?x8xi1, #relax.dims<["rows", 8]>>
  return
}
