// RUN: mirlo-opt %s --simplify | FileCheck %s

// A wider float represents all values of the narrower one.
// CHECK-LABEL: func.func @widened_and_back(
// CHECK-NEXT:    return %arg0
func.func @widened_and_back(%x: tensor<3x4xf16>) -> tensor<3x4xf16> {
  %0 = "relax.cast"(%x) {dtype = f32} : (tensor<3x4xf16>) -> tensor<3x4xf32>
  %1 = "relax.cast"(%0) {dtype = f16} : (tensor<3x4xf32>) -> tensor<3x4xf16>
  return %1 : tensor<3x4xf16>
}

// CHECK-LABEL: func.func @narrowed_and_back(
// CHECK-COUNT-2: "relax.cast"
func.func @narrowed_and_back(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = "relax.cast"(%x) {dtype = f16} : (tensor<3x4xf32>) -> tensor<3x4xf16>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<3x4xf16>) -> tensor<3x4xf32>
  return %1 : tensor<3x4xf32>
}

// Rows are read packed; elements of a row are not.
// CHECK-LABEL: func.func @packed_rows(
// CHECK-NEXT:    %[[R:.*]] = "relax.gather"(%arg0, %arg1) : (tensor<5x4xui8>
// CHECK-NEXT:    "relax.unpack"(%[[R]])
func.func @packed_rows(%x: tensor<5x4xui8>, %i: tensor<2xi64>) -> tensor<2x8xui4> {
  %0 = "relax.unpack"(%x) {dtype = ui4} : (tensor<5x4xui8>) -> tensor<5x8xui4>
  %1 = "relax.gather"(%0, %i) {axis = 0 : i64} : (tensor<5x8xui4>, tensor<2xi64>) -> tensor<2x8xui4>
  return %1 : tensor<2x8xui4>
}

// CHECK-LABEL: func.func @packed_elements(
// CHECK-NEXT:    "relax.unpack"(%arg0)
func.func @packed_elements(%x: tensor<5x4xui8>, %i: tensor<2xi64>) -> tensor<5x2xui4> {
  %0 = "relax.unpack"(%x) {dtype = ui4} : (tensor<5x4xui8>) -> tensor<5x8xui4>
  %1 = "relax.gather"(%0, %i) {axis = 1 : i64} : (tensor<5x8xui4>, tensor<2xi64>) -> tensor<5x2xui4>
  return %1 : tensor<5x2xui4>
}
