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

// Codes times a scale for each row, less a zero point for each column: of the rows that are read.
// CHECK-LABEL: func.func @codes(
// CHECK-DAG:     %[[C:.*]] = "relax.constant"() {param = "c"}
// CHECK-DAG:     %[[S:.*]] = "relax.constant"() {param = "s"}
// CHECK-DAG:     %[[Z:.*]] = "relax.constant"() {param = "z"}
// CHECK:         %[[R:.*]] = "relax.gather"(%[[C]], %arg0) {{.*}}-> tensor<2x4x256xi8>
// CHECK:         %[[F:.*]] = "relax.cast"(%[[R]]) {dtype = f32}
// CHECK:         %[[D:.*]] = "relax.subtract"(%[[F]], %[[Z]]) {{.*}}-> tensor<2x4x256xf32>
// CHECK:         %[[W:.*]] = "relax.gather"(%[[S]], %arg0) {{.*}}-> tensor<2x4x1xf32>
// CHECK:         "relax.multiply"(%[[D]], %[[W]]) {{.*}}-> tensor<2x4x256xf32>
func.func @codes(%i: tensor<2x4xi64>) -> tensor<2x4x256xf32> {
  %c = "relax.constant"() {param = "c"} : () -> tensor<8192x256xi8>
  %s = "relax.constant"() {param = "s"} : () -> tensor<8192x1xf32>
  %z = "relax.constant"() {param = "z"} : () -> tensor<256xf32>
  %0 = "relax.cast"(%c) {dtype = f32} : (tensor<8192x256xi8>) -> tensor<8192x256xf32>
  %1 = "relax.subtract"(%0, %z) : (tensor<8192x256xf32>, tensor<256xf32>) -> tensor<8192x256xf32>
  %2 = "relax.multiply"(%1, %s) : (tensor<8192x256xf32>, tensor<8192x1xf32>) -> tensor<8192x256xf32>
  %3 = "relax.gather"(%2, %i) : (tensor<8192x256xf32>, tensor<2x4xi64>) -> tensor<2x4x256xf32>
  return %3 : tensor<2x4x256xf32>
}

// Along the second axis, a scale for each row is beside another dim than before.
// CHECK-LABEL: func.func @columns(
// CHECK:         "relax.gather"(%{{.*}}, %arg0) {axis = 1 : i64} : (tensor<256x8192xf32>
func.func @columns(%i: tensor<2x4xi64>) -> tensor<256x2x4xf32> {
  %c = "relax.constant"() {param = "c"} : () -> tensor<256x8192xi8>
  %s = "relax.constant"() {param = "s"} : () -> tensor<256x1xf32>
  %0 = "relax.cast"(%c) {dtype = f32} : (tensor<256x8192xi8>) -> tensor<256x8192xf32>
  %1 = "relax.multiply"(%0, %s) : (tensor<256x8192xf32>, tensor<256x1xf32>) -> tensor<256x8192xf32>
  %2 = "relax.gather"(%1, %i) {axis = 1 : i64} : (tensor<256x8192xf32>, tensor<2x4xi64>) -> tensor<256x2x4xf32>
  return %2 : tensor<256x2x4xf32>
}
