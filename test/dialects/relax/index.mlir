// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Gather and scatter.

// CHECK-LABEL: func.func @gather_embedding(
func.func @gather_embedding(%x: tensor<1000x64xf32>, %indices: tensor<?x?xi64, #relax.dims<["b", "s"]>>) -> tensor<?x?x64xf32, #relax.dims<["b", "s", 64]>> {
  // CHECK: "relax.gather"(%{{.*}}, %{{.*}}) :
  %0 = "relax.gather"(%x, %indices) : (tensor<1000x64xf32>, tensor<?x?xi64, #relax.dims<["b", "s"]>>) -> tensor<?x?x64xf32, #relax.dims<["b", "s", 64]>>
  return %0 : tensor<?x?x64xf32, #relax.dims<["b", "s", 64]>>
}

// CHECK-LABEL: func.func @gather_scalar(
func.func @gather_scalar(%x: tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>, %indices: tensor<i32>) -> tensor<2x4xf32> {
  // CHECK: "relax.gather"(%{{.*}}, %{{.*}}) {axis = 1 : i64} :
  %0 = "relax.gather"(%x, %indices) {axis = 1 : i64} : (tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>, tensor<i32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @gather_elements_rows(
func.func @gather_elements_rows(%x: tensor<?x8xf32, #relax.dims<["b", 8]>>, %indices: tensor<?x3xi64, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>> {
  // CHECK: "relax.gather_elements"(%{{.*}}, %{{.*}}) {axis = -1 : i64} :
  %0 = "relax.gather_elements"(%x, %indices) {axis = -1 : i64} : (tensor<?x8xf32, #relax.dims<["b", 8]>>, tensor<?x3xi64, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  return %0 : tensor<?x3xf32, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @gather_nd_points(
func.func @gather_nd_points(%x: tensor<4x5x6xf32>, %indices: tensor<?x2xi64, #relax.dims<["n", 2]>>) -> tensor<?x6xf32, #relax.dims<["n", 6]>> {
  // CHECK: "relax.gather_nd"(%{{.*}}, %{{.*}}) :
  %0 = "relax.gather_nd"(%x, %indices) : (tensor<4x5x6xf32>, tensor<?x2xi64, #relax.dims<["n", 2]>>) -> tensor<?x6xf32, #relax.dims<["n", 6]>>
  return %0 : tensor<?x6xf32, #relax.dims<["n", 6]>>
}

// CHECK-LABEL: func.func @gather_nd_batched(
func.func @gather_nd_batched(%x: tensor<?x5x6xf32, #relax.dims<["b", 5, 6]>>, %indices: tensor<?x3x1xi64, #relax.dims<["b", 3, 1]>>) -> tensor<?x3x6xf32, #relax.dims<["b", 3, 6]>> {
  // CHECK: "relax.gather_nd"(%{{.*}}, %{{.*}}) {batch_dims = 1 : i64} :
  %0 = "relax.gather_nd"(%x, %indices) {batch_dims = 1 : i64} : (tensor<?x5x6xf32, #relax.dims<["b", 5, 6]>>, tensor<?x3x1xi64, #relax.dims<["b", 3, 1]>>) -> tensor<?x3x6xf32, #relax.dims<["b", 3, 6]>>
  return %0 : tensor<?x3x6xf32, #relax.dims<["b", 3, 6]>>
}

// CHECK-LABEL: func.func @scatter_elements_write(
func.func @scatter_elements_write(%x: tensor<3x4xf32>, %indices: tensor<2x4xi64>, %updates: tensor<2x4xf32>) -> tensor<3x4xf32> {
  // CHECK: "relax.scatter_elements"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.scatter_elements"(%x, %indices, %updates) : (tensor<3x4xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @scatter_elements_reduce(
func.func @scatter_elements_reduce(%x: tensor<?x4xf32, #relax.dims<["n", 4]>>, %indices: tensor<?x2xi32, #relax.dims<["n", 2]>>, %updates: tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>> {
  // CHECK: "relax.scatter_elements"(%{{.*}}, %{{.*}}, %{{.*}}) {axis = 1 : i64, reduction = "add"} :
  %0 = "relax.scatter_elements"(%x, %indices, %updates) {axis = 1 : i64, reduction = "add"} : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<?x2xi32, #relax.dims<["n", 2]>>, tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  // CHECK: "relax.scatter_elements"(%{{.*}}, %{{.*}}, %{{.*}}) {axis = 1 : i64, reduction = "mul"} :
  %1 = "relax.scatter_elements"(%x, %indices, %updates) {axis = 1 : i64, reduction = "mul"} : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<?x2xi32, #relax.dims<["n", 2]>>, tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  // CHECK: "relax.scatter_elements"(%{{.*}}, %{{.*}}, %{{.*}}) {axis = 1 : i64, reduction = "max"} :
  %2 = "relax.scatter_elements"(%x, %indices, %updates) {axis = 1 : i64, reduction = "max"} : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<?x2xi32, #relax.dims<["n", 2]>>, tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  // CHECK: "relax.scatter_elements"(%{{.*}}, %{{.*}}, %{{.*}}) {axis = 1 : i64, reduction = "min"} :
  %3 = "relax.scatter_elements"(%x, %indices, %updates) {axis = 1 : i64, reduction = "min"} : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<?x2xi32, #relax.dims<["n", 2]>>, tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  return %3 : tensor<?x4xf32, #relax.dims<["n", 4]>>
}

// CHECK-LABEL: func.func @scatter_nd_write(
func.func @scatter_nd_write(%x: tensor<4x5x6xf32>, %indices: tensor<?x2xi64, #relax.dims<["n", 2]>>, %updates: tensor<?x6xf32, #relax.dims<["n", 6]>>) -> tensor<4x5x6xf32> {
  // CHECK: "relax.scatter_nd"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.scatter_nd"(%x, %indices, %updates) : (tensor<4x5x6xf32>, tensor<?x2xi64, #relax.dims<["n", 2]>>, tensor<?x6xf32, #relax.dims<["n", 6]>>) -> tensor<4x5x6xf32>
  return %0 : tensor<4x5x6xf32>
}

// CHECK-LABEL: func.func @scatter_nd_reduce(
func.func @scatter_nd_reduce(%x: tensor<8xi32>, %indices: tensor<3x1xi64>, %updates: tensor<3xi32>) -> tensor<8xi32> {
  // CHECK: "relax.scatter_nd"(%{{.*}}, %{{.*}}, %{{.*}}) {reduction = "add"} :
  %0 = "relax.scatter_nd"(%x, %indices, %updates) {reduction = "add"} : (tensor<8xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<8xi32>
  // CHECK: "relax.scatter_nd"(%{{.*}}, %{{.*}}, %{{.*}}) {reduction = "mul"} :
  %1 = "relax.scatter_nd"(%x, %indices, %updates) {reduction = "mul"} : (tensor<8xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<8xi32>
  // CHECK: "relax.scatter_nd"(%{{.*}}, %{{.*}}, %{{.*}}) {reduction = "max"} :
  %2 = "relax.scatter_nd"(%x, %indices, %updates) {reduction = "max"} : (tensor<8xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<8xi32>
  // CHECK: "relax.scatter_nd"(%{{.*}}, %{{.*}}, %{{.*}}) {reduction = "min"} :
  %3 = "relax.scatter_nd"(%x, %indices, %updates) {reduction = "min"} : (tensor<8xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<8xi32>
  return %3 : tensor<8xi32>
}

// CHECK-LABEL: func.func @one_hot_last(
func.func @one_hot_last(%indices: tensor<?x?xi64, #relax.dims<["b", "s"]>>, %values: tensor<2xf32>) -> tensor<?x?x10xf32, #relax.dims<["b", "s", 10]>> {
  // CHECK: "relax.one_hot"(%{{.*}}, %{{.*}}) {depth = 10 : i64} :
  %0 = "relax.one_hot"(%indices, %values) {depth = 10 : i64} : (tensor<?x?xi64, #relax.dims<["b", "s"]>>, tensor<2xf32>) -> tensor<?x?x10xf32, #relax.dims<["b", "s", 10]>>
  return %0 : tensor<?x?x10xf32, #relax.dims<["b", "s", 10]>>
}

// CHECK-LABEL: func.func @one_hot_first(
func.func @one_hot_first(%indices: tensor<3xi32>, %values: tensor<2xi8>) -> tensor<4x3xi8> {
  // CHECK: "relax.one_hot"(%{{.*}}, %{{.*}}) {axis = 0 : i64, depth = 4 : i64} :
  %0 = "relax.one_hot"(%indices, %values) {axis = 0 : i64, depth = 4 : i64} : (tensor<3xi32>, tensor<2xi8>) -> tensor<4x3xi8>
  return %0 : tensor<4x3xi8>
}
