// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Activations and the softmax family.

// CHECK-LABEL: func.func @parameterless(
func.func @parameterless(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>> {
  // CHECK: "relax.relu"(%{{.*}}) :
  %0 = "relax.relu"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.sigmoid"(%{{.*}}) :
  %1 = "relax.sigmoid"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.hard_swish"(%{{.*}}) :
  %2 = "relax.hard_swish"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.silu"(%{{.*}}) :
  %3 = "relax.silu"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.mish"(%{{.*}}) :
  %4 = "relax.mish"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.softplus"(%{{.*}}) :
  %5 = "relax.softplus"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.softsign"(%{{.*}}) :
  %6 = "relax.softsign"(%x) : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  return %6 : tensor<?x3xf32, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @defaults(
func.func @defaults(%x: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK: "relax.leaky_relu"(%{{.*}}) :
  %0 = "relax.leaky_relu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.elu"(%{{.*}}) :
  %1 = "relax.elu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.selu"(%{{.*}}) :
  %2 = "relax.selu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.celu"(%{{.*}}) :
  %3 = "relax.celu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.hard_sigmoid"(%{{.*}}) :
  %4 = "relax.hard_sigmoid"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.thresholded_relu"(%{{.*}}) :
  %5 = "relax.thresholded_relu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.shrink"(%{{.*}}) :
  %6 = "relax.shrink"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.gelu"(%{{.*}}) :
  %7 = "relax.gelu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK: "relax.clip"(%{{.*}}) :
  %8 = "relax.clip"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %8 : tensor<2xf32>
}

// CHECK-LABEL: func.func @parameters(
func.func @parameters(%x: tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>> {
  // CHECK: "relax.leaky_relu"(%{{.*}}) {alpha = 2.000000e-01 : f64} :
  %0 = "relax.leaky_relu"(%x) {alpha = 2.000000e-01 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.elu"(%{{.*}}) {alpha = 5.000000e-01 : f64} :
  %1 = "relax.elu"(%x) {alpha = 5.000000e-01 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.selu"(%{{.*}}) {alpha = 1.500000e+00 : f64, gamma = 1.000000e+00 : f64} :
  %2 = "relax.selu"(%x) {alpha = 1.500000e+00 : f64, gamma = 1.000000e+00 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.celu"(%{{.*}}) {alpha = 2.000000e+00 : f64} :
  %3 = "relax.celu"(%x) {alpha = 2.000000e+00 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.hard_sigmoid"(%{{.*}}) {alpha = 2.500000e-01 : f64, beta = 2.500000e-01 : f64} :
  %4 = "relax.hard_sigmoid"(%x) {alpha = 2.500000e-01 : f64, beta = 2.500000e-01 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.thresholded_relu"(%{{.*}}) {alpha = 5.000000e-01 : f64} :
  %5 = "relax.thresholded_relu"(%x) {alpha = 5.000000e-01 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.shrink"(%{{.*}}) {bias = 5.000000e-01 : f64, lambd = 1.000000e+00 : f64} :
  %6 = "relax.shrink"(%x) {bias = 5.000000e-01 : f64, lambd = 1.000000e+00 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.gelu"(%{{.*}}) {approximate = "tanh"} :
  %7 = "relax.gelu"(%x) {approximate = "tanh"} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.clip"(%{{.*}}) {max = 6.000000e+00 : f64, min = 0.000000e+00 : f64} :
  %8 = "relax.clip"(%x) {max = 6.000000e+00 : f64, min = 0.000000e+00 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  // CHECK: "relax.clip"(%{{.*}}) {min = -1.000000e+00 : f64} :
  %9 = "relax.clip"(%x) {min = -1.000000e+00 : f64} : (tensor<?xf16, #relax.dims<["n"]>>) -> tensor<?xf16, #relax.dims<["n"]>>
  return %9 : tensor<?xf16, #relax.dims<["n"]>>
}

// CHECK-LABEL: func.func @integers(
func.func @integers(%x: tensor<4xi32>) -> tensor<4xi32> {
  // CHECK: "relax.relu"(%{{.*}}) :
  %0 = "relax.relu"(%x) : (tensor<4xi32>) -> tensor<4xi32>
  // CHECK: "relax.clip"(%{{.*}}) {max = 2.550000e+02 : f64} :
  %1 = "relax.clip"(%x) {max = 2.550000e+02 : f64} : (tensor<4xi32>) -> tensor<4xi32>
  // CHECK: "relax.shrink"(%{{.*}}) :
  %2 = "relax.shrink"(%x) : (tensor<4xi32>) -> tensor<4xi32>
  return %2 : tensor<4xi32>
}

// CHECK-LABEL: func.func @prelu_per_channel(
func.func @prelu_per_channel(%x: tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>>, %slope: tensor<3x1x1xf32>) -> tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>> {
  // CHECK: "relax.prelu"(%{{.*}}, %{{.*}}) :
  %0 = "relax.prelu"(%x, %slope) : (tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>>, tensor<3x1x1xf32>) -> tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>>
  return %0 : tensor<?x3x8x8xf32, #relax.dims<["b", 3, 8, 8]>>
}

// CHECK-LABEL: func.func @over_last_axis(
func.func @over_last_axis(%x: tensor<?x?xf32, #relax.dims<["b", "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>> {
  // CHECK: "relax.softmax"(%{{.*}}) :
  %0 = "relax.softmax"(%x) : (tensor<?x?xf32, #relax.dims<["b", "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.log_softmax"(%{{.*}}) :
  %1 = "relax.log_softmax"(%x) : (tensor<?x?xf32, #relax.dims<["b", "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  // CHECK: "relax.hardmax"(%{{.*}}) :
  %2 = "relax.hardmax"(%x) : (tensor<?x?xf32, #relax.dims<["b", "n"]>>) -> tensor<?x?xf32, #relax.dims<["b", "n"]>>
  return %2 : tensor<?x?xf32, #relax.dims<["b", "n"]>>
}

// CHECK-LABEL: func.func @over_other_axis(
func.func @over_other_axis(%x: tensor<2x3x4xbf16>) -> tensor<2x3x4xbf16> {
  // CHECK: "relax.softmax"(%{{.*}}) {axis = 1 : i64} :
  %0 = "relax.softmax"(%x) {axis = 1 : i64} : (tensor<2x3x4xbf16>) -> tensor<2x3x4xbf16>
  // CHECK: "relax.log_softmax"(%{{.*}}) {axis = 0 : i64} :
  %1 = "relax.log_softmax"(%x) {axis = 0 : i64} : (tensor<2x3x4xbf16>) -> tensor<2x3x4xbf16>
  // CHECK: "relax.hardmax"(%{{.*}}) {axis = -3 : i64} :
  %2 = "relax.hardmax"(%x) {axis = -3 : i64} : (tensor<2x3x4xbf16>) -> tensor<2x3x4xbf16>
  return %2 : tensor<2x3x4xbf16>
}
