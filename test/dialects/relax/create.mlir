// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Tensors from numbers.

// CHECK-LABEL: func.func @full_symbolic(
func.func @full_symbolic() -> tensor<?x3xf32, #relax.dims<["b", 3]>> {
  // CHECK: "relax.full"() {dtype = f32, shape = ["b", 3], value = 1.500000e+00 : f64} :
  %0 = "relax.full"() {dtype = f32, shape = ["b", 3], value = 1.500000e+00 : f64} : () -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  return %0 : tensor<?x3xf32, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @full_scalar(
func.func @full_scalar() -> tensor<i1> {
  // CHECK: "relax.full"() {dtype = i1, shape = [], value = 1.000000e+00 : f64} :
  %0 = "relax.full"() {dtype = i1, shape = [], value = 1.000000e+00 : f64} : () -> tensor<i1>
  return %0 : tensor<i1>
}

// CHECK-LABEL: func.func @arange_integers(
func.func @arange_integers() -> tensor<4xi64> {
  // CHECK: "relax.arange"() {dtype = i64, start = 0.000000e+00 : f64, step = 2.000000e+00 : f64, stop = 7.000000e+00 : f64} :
  %0 = "relax.arange"() {dtype = i64, start = 0.000000e+00 : f64, step = 2.000000e+00 : f64, stop = 7.000000e+00 : f64} : () -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// CHECK-LABEL: func.func @arange_downwards(
func.func @arange_downwards() -> tensor<4xf32> {
  // CHECK: "relax.arange"() {dtype = f32, start = 1.000000e+00 : f64, step = -2.500000e-01 : f64, stop = 0.000000e+00 : f64} :
  %0 = "relax.arange"() {dtype = f32, start = 1.000000e+00 : f64, step = -2.500000e-01 : f64, stop = 0.000000e+00 : f64} : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @arange_empty(
func.func @arange_empty() -> tensor<0xi32> {
  // CHECK: "relax.arange"() {dtype = i32, start = 3.000000e+00 : f64, step = 1.000000e+00 : f64, stop = 0.000000e+00 : f64} :
  %0 = "relax.arange"() {dtype = i32, start = 3.000000e+00 : f64, step = 1.000000e+00 : f64, stop = 0.000000e+00 : f64} : () -> tensor<0xi32>
  return %0 : tensor<0xi32>
}

// CHECK-LABEL: func.func @eye_square(
func.func @eye_square() -> tensor<4x4xf32> {
  // CHECK: "relax.eye"() {dtype = f32, shape = [4, 4]} :
  %0 = "relax.eye"() {dtype = f32, shape = [4, 4]} : () -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @eye_shifted(
func.func @eye_shifted() -> tensor<?x3xi64, #relax.dims<["n", 3]>> {
  // CHECK: "relax.eye"() {dtype = i64, k = -1 : i64, shape = ["n", 3]} :
  %0 = "relax.eye"() {dtype = i64, k = -1 : i64, shape = ["n", 3]} : () -> tensor<?x3xi64, #relax.dims<["n", 3]>>
  return %0 : tensor<?x3xi64, #relax.dims<["n", 3]>>
}

// CHECK-LABEL: func.func @tri_lower(
func.func @tri_lower(%x: tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>>) -> tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>> {
  // CHECK: "relax.tri"(%{{.*}}) :
  %0 = "relax.tri"(%x) : (tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>>) -> tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>>
  return %0 : tensor<?x?x?xf32, #relax.dims<["b", "n", "n"]>>
}

// CHECK-LABEL: func.func @tri_upper(
func.func @tri_upper(%x: tensor<3x4xi1>) -> tensor<3x4xi1> {
  // CHECK: "relax.tri"(%{{.*}}) {k = 1 : i64, upper = true} :
  %0 = "relax.tri"(%x) {k = 1 : i64, upper = true} : (tensor<3x4xi1>) -> tensor<3x4xi1>
  return %0 : tensor<3x4xi1>
}

// CHECK-LABEL: func.func @dft_matrix(
func.func @dft_matrix() -> tensor<?x1x?x2xf32, #relax.dims<["n", 1, "n", 2]>> {
  // CHECK: "relax.dft_matrix"() {dtype = f32, length = ["n"], shape = ["n", 1, "n", 2]} :
  %0 = "relax.dft_matrix"() {dtype = f32, length = ["n"], shape = ["n", 1, "n", 2]} : () -> tensor<?x1x?x2xf32, #relax.dims<["n", 1, "n", 2]>>
  return %0 : tensor<?x1x?x2xf32, #relax.dims<["n", 1, "n", 2]>>
}
