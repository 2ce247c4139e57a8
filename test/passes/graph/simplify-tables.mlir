// RUN: mirlo-opt %s --simplify | FileCheck %s

// Of a table that is too large to be stored as f32, only the rows that are read are converted.
// CHECK-LABEL: func.func @gather(
// CHECK:         %[[T:.*]] = "relax.constant"() {param = "t"}
// CHECK:         %[[R:.*]] = "relax.gather"(%[[T]], %arg0) : (tensor<8192x256xf16>, tensor<4xi64>) -> tensor<4x256xf16>
// CHECK:         "relax.cast"(%[[R]]) {dtype = f32}
func.func @gather(%i: tensor<4xi64>) -> tensor<4x256xf32> {
  %t = "relax.constant"() {param = "t"} : () -> tensor<8192x256xf16>
  %0 = "relax.cast"(%t) {dtype = f32} : (tensor<8192x256xf16>) -> tensor<8192x256xf32>
  %1 = "relax.gather"(%0, %i) : (tensor<8192x256xf32>, tensor<4xi64>) -> tensor<4x256xf32>
  return %1 : tensor<4x256xf32>
}

// So are the elements of a slice that a call selects.
// CHECK-LABEL: func.func @slice(
// CHECK:         "relax.slice_at"(%{{.*}}, %arg0) {shape = [2, 256]} : (tensor<8192x256xf16>, tensor<3x2xi64>) -> tensor<2x256xf16>
func.func @slice(%i: tensor<3x2xi64>) -> tensor<2x256xf32> {
  %t = "relax.constant"() {param = "t"} : () -> tensor<8192x256xf16>
  %0 = "relax.cast"(%t) {dtype = f32} : (tensor<8192x256xf16>) -> tensor<8192x256xf32>
  %1 = "relax.slice_at"(%0, %i) {shape = [2, 256]} : (tensor<8192x256xf32>, tensor<3x2xi64>) -> tensor<2x256xf32>
  return %1 : tensor<2x256xf32>
}

// Constant folding converts a small table.
// CHECK-LABEL: func.func @small(
// CHECK:         "relax.gather"(%{{.*}}, %arg0) : (tensor<16x256xf32>
func.func @small(%i: tensor<4xi64>) -> tensor<4x256xf32> {
  %t = "relax.constant"() {param = "t"} : () -> tensor<16x256xf16>
  %0 = "relax.cast"(%t) {dtype = f32} : (tensor<16x256xf16>) -> tensor<16x256xf32>
  %1 = "relax.gather"(%0, %i) : (tensor<16x256xf32>, tensor<4xi64>) -> tensor<4x256xf32>
  return %1 : tensor<4x256xf32>
}
