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
  // CHECK: "relax.all_to_all"(%{{.*}}) {concat_axis = 0 : i64, ranks = 2 : i64, split_axis = 0 : i64} : ({{.*}}) -> tensor<?x4xi1, #relax.dims<["2*rows", 4]>>
  %4 = "relax.all_to_all"(%y) {concat_axis = 0 : i64, ranks = 2 : i64, split_axis = 0 : i64} : (tensor<?x4xi1, #relax.dims<["2*rows", 4]>>) -> tensor<?x4xi1, #relax.dims<["2*rows", 4]>>
  // CHECK: "relax.all_reduce"(%{{.*}}) {group_size = 2 : i64, groups = array<i64: 0, 3, 2, -1, 1, -1>, ranks = 4 : i64, reduction = "or"} : (tensor<?x4xi1, #relax.dims<["2*rows", 4]>>) -> tensor<?x4xi1, #relax.dims<["2*rows", 4]>>
  %5 = "relax.all_reduce"(%y) {group_size = 2 : i64, groups = array<i64: 0, 3, 2, -1, 1, -1>, ranks = 4 : i64, reduction = "or"} : (tensor<?x4xi1, #relax.dims<["2*rows", 4]>>) -> tensor<?x4xi1, #relax.dims<["2*rows", 4]>>
  // CHECK: "relax.all_gather"(%{{.*}}) {axis = 0 : i64, group_size = 2 : i64, groups = array<i64: 0, 2, 3, 1>, ranks = 4 : i64} : ({{.*}}) -> tensor<?x8xf32, #relax.dims<["2*batch", 8]>>
  %6 = "relax.all_gather"(%x) {axis = 0 : i64, group_size = 2 : i64, groups = array<i64: 0, 2, 3, 1>, ranks = 4 : i64} : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x8xf32, #relax.dims<["2*batch", 8]>>
  // CHECK: "relax.collective_permute"(%{{.*}}) {pairs = array<i64: 0, 1, 0, 2>, ranks = 4 : i64}
  %7 = "relax.collective_permute"(%x) {pairs = array<i64: 0, 1, 0, 2>, ranks = 4 : i64} : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x8xf32, #relax.dims<["batch", 8]>>
  // CHECK: "relax.rank_id"() {ranks = 4 : i64} : () -> tensor<ui32>
  %8 = "relax.rank_id"() {ranks = 4 : i64} : () -> tensor<ui32>
  return
}
