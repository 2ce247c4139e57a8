// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Sorting and selection.

// CHECK-LABEL: func.func @topk_largest(
func.func @topk_largest(%x: tensor<?x10xf32, #relax.dims<["b", 10]>>) -> (tensor<?x3xf32, #relax.dims<["b", 3]>>, tensor<?x3xi64, #relax.dims<["b", 3]>>) {
  // CHECK: "relax.topk"(%{{.*}}) {k = 3 : i64} :
  %0:2 = "relax.topk"(%x) {k = 3 : i64} : (tensor<?x10xf32, #relax.dims<["b", 10]>>) -> (tensor<?x3xf32, #relax.dims<["b", 3]>>, tensor<?x3xi64, #relax.dims<["b", 3]>>)
  return %0#0, %0#1 : tensor<?x3xf32, #relax.dims<["b", 3]>>, tensor<?x3xi64, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @topk_smallest(
func.func @topk_smallest(%x: tensor<?x10xi32, #relax.dims<["n", 10]>>) -> (tensor<1x10xi32>, tensor<1x10xi64>) {
  // CHECK: "relax.topk"(%{{.*}}) {axis = 0 : i64, k = 1 : i64, largest = false, sorted = false} :
  %0:2 = "relax.topk"(%x) {axis = 0 : i64, k = 1 : i64, largest = false, sorted = false} : (tensor<?x10xi32, #relax.dims<["n", 10]>>) -> (tensor<1x10xi32>, tensor<1x10xi64>)
  return %0#0, %0#1 : tensor<1x10xi32>, tensor<1x10xi64>
}

// CHECK-LABEL: func.func @sort_both(
func.func @sort_both(%x: tensor<?x10xf32, #relax.dims<["b", 10]>>) -> tensor<?x10xf32, #relax.dims<["b", 10]>> {
  // CHECK: "relax.sort"(%{{.*}}) :
  %0 = "relax.sort"(%x) : (tensor<?x10xf32, #relax.dims<["b", 10]>>) -> tensor<?x10xf32, #relax.dims<["b", 10]>>
  // CHECK: "relax.sort"(%{{.*}}) {axis = 0 : i64, descending = true} :
  %1 = "relax.sort"(%x) {axis = 0 : i64, descending = true} : (tensor<?x10xf32, #relax.dims<["b", 10]>>) -> tensor<?x10xf32, #relax.dims<["b", 10]>>
  return %1 : tensor<?x10xf32, #relax.dims<["b", 10]>>
}

// CHECK-LABEL: func.func @argsort_both(
func.func @argsort_both(%x: tensor<?x10xui8, #relax.dims<["b", 10]>>) -> tensor<?x10xi64, #relax.dims<["b", 10]>> {
  // CHECK: "relax.argsort"(%{{.*}}) :
  %0 = "relax.argsort"(%x) : (tensor<?x10xui8, #relax.dims<["b", 10]>>) -> tensor<?x10xi64, #relax.dims<["b", 10]>>
  // CHECK: "relax.argsort"(%{{.*}}) {axis = 0 : i64, descending = true} :
  %1 = "relax.argsort"(%x) {axis = 0 : i64, descending = true} : (tensor<?x10xui8, #relax.dims<["b", 10]>>) -> tensor<?x10xi64, #relax.dims<["b", 10]>>
  return %1 : tensor<?x10xi64, #relax.dims<["b", 10]>>
}

// CHECK-LABEL: func.func @argsort_rows(
func.func @argsort_rows(%x: tensor<?x3xi1, #relax.dims<["n", 3]>>) -> tensor<?xi64, #relax.dims<["n"]>> {
  // CHECK: "relax.argsort_rows"(%{{.*}}) : (tensor<?x3xi1, #relax.dims<["n", 3]>>) -> tensor<?xi64, #relax.dims<["n"]>>
  %0 = "relax.argsort_rows"(%x) : (tensor<?x3xi1, #relax.dims<["n", 3]>>) -> tensor<?xi64, #relax.dims<["n"]>>
  return %0 : tensor<?xi64, #relax.dims<["n"]>>
}
