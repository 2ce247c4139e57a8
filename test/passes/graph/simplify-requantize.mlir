// RUN: mirlo-opt %s --simplify --fold-constant --remove-dead --split-input-file | FileCheck %s

// The quotient of the scales is a sum of two f32, and the bias is added to what rounds.
// CHECK-LABEL: func.func @product(
// CHECK:         %[[P:.*]] = "relax.matmul"(%arg0, %{{.*}}) {out_dtype = i32}
// CHECK-DAG:     "relax.constant"() {value = dense<{{\[}}1.000000e-01, 2.000000e-01]> : tensor<2xf32>}
// CHECK-DAG:     "relax.constant"() {value = dense<{{\[}}-1.49{{[0-9]*}}E-9, -2.98{{[0-9]*}}E-9]> : tensor<2xf32>}
// CHECK-DAG:     "relax.constant"() {value = dense<{{\[\[}}0x4B400002, 0x4B3FFFFE]]> : tensor<1x2xf32>}
// CHECK:         %[[R:.*]] = "relax.requantize"(%[[P]], {{.*}}) {dtype = ui8, max = 255 : i64, min = 3 : i64, zero_point = 3 : i64}
// CHECK:         return %[[R]]
func.func @product(%x: tensor<3x2xi8>) -> tensor<3x2xui8> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %w = "relax.constant"() {value = dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>} : () -> tensor<2x2xi8>
  %ws = "relax.constant"() {value = dense<[2.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %bias = "relax.constant"() {value = dense<[[20.0, -20.0]]> : tensor<1x2xf32>} : () -> tensor<1x2xf32>
  %ys = "relax.constant"() {value = dense<10.0> : tensor<f32>} : () -> tensor<f32>
  %yz = "relax.constant"() {value = dense<3> : tensor<ui8>} : () -> tensor<ui8>
  %0 = "relax.dequantize"(%x, %s) : (tensor<3x2xi8>, tensor<f32>) -> tensor<3x2xf32>
  %1 = "relax.dequantize"(%w, %ws) {axis = 1 : i64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %2 = "relax.matmul"(%0, %1) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %3 = "relax.add"(%2, %bias) : (tensor<3x2xf32>, tensor<1x2xf32>) -> tensor<3x2xf32>
  %4 = "relax.relu"(%3) : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %5 = "relax.quantize"(%4, %ys, %yz) {dtype = ui8} : (tensor<3x2xf32>, tensor<f32>, tensor<ui8>) -> tensor<3x2xui8>
  return %5 : tensor<3x2xui8>
}

// -----

// A sum that is used elsewhere too is computed in f32 once.
// CHECK-LABEL: func.func @used(
// CHECK-NOT:     relax.requantize
// CHECK:         "relax.quantize"
func.func @used(%x: tensor<4xi8>, %y: tensor<4xi8>) -> (tensor<4xi8>, tensor<4xf32>) {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.dequantize"(%x, %s) : (tensor<4xi8>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.dequantize"(%y, %s) : (tensor<4xi8>, tensor<f32>) -> tensor<4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.quantize"(%2, %s) {dtype = i8} : (tensor<4xf32>, tensor<f32>) -> tensor<4xi8>
  return %3, %2 : tensor<4xi8>, tensor<4xf32>
}

// -----

// A multiplier of the other operand whose product is not exact.
// CHECK-LABEL: func.func @large(
// CHECK-NOT:     relax.requantize
// CHECK:         "relax.quantize"
func.func @large(%x: tensor<4xi8>, %y: tensor<4xi8>) -> tensor<4xi8> {
  %s = "relax.constant"() {value = dense<5.0> : tensor<f32>} : () -> tensor<f32>
  %t = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.dequantize"(%x, %s) : (tensor<4xi8>, tensor<f32>) -> tensor<4xf32>
  %1 = "relax.dequantize"(%y, %t) : (tensor<4xi8>, tensor<f32>) -> tensor<4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.quantize"(%2, %t) {dtype = i8} : (tensor<4xf32>, tensor<f32>) -> tensor<4xi8>
  return %3 : tensor<4xi8>
}

// Integers that are only moved between their dequantization and their quantization are not converted.
// CHECK-LABEL: func.func @moved
// CHECK: %[[P:.*]] = "relax.permute"(%arg0) {axes = array<i64: 1, 0>} : (tensor<2x6xi8>) -> tensor<6x2xi8>
// CHECK: %[[R:.*]] = "relax.reshape"(%[[P]]) {shape = [3, 4]} : (tensor<6x2xi8>) -> tensor<3x4xi8>
// CHECK-NOT: relax.quantize
// CHECK: return %[[R]]
func.func @moved(%x: tensor<2x6xi8>) -> tensor<3x4xi8> {
  %s = "relax.constant"() {value = dense<0.1> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<-3> : tensor<i8>} : () -> tensor<i8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<2x6xi8>, tensor<f32>, tensor<i8>) -> tensor<2x6xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<2x6xf32>) -> tensor<6x2xf32>
  %2 = "relax.reshape"(%1) {shape = [3, 4]} : (tensor<6x2xf32>) -> tensor<3x4xf32>
  %3 = "relax.quantize"(%2, %s, %z) {dtype = i8} : (tensor<3x4xf32>, tensor<f32>, tensor<i8>) -> tensor<3x4xi8>
  return %3 : tensor<3x4xi8>
}

// With another scale they are.
// CHECK-LABEL: func.func @moved_and_scaled
// CHECK: relax.permute
// CHECK: {{relax.(re)?quantize}}
func.func @moved_and_scaled(%x: tensor<2x6xi8>) -> tensor<6x2xi8> {
  %s = "relax.constant"() {value = dense<0.1> : tensor<f32>} : () -> tensor<f32>
  %t = "relax.constant"() {value = dense<0.2> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<-3> : tensor<i8>} : () -> tensor<i8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<2x6xi8>, tensor<f32>, tensor<i8>) -> tensor<2x6xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<2x6xf32>) -> tensor<6x2xf32>
  %2 = "relax.quantize"(%1, %t, %z) {dtype = i8} : (tensor<6x2xf32>, tensor<f32>, tensor<i8>) -> tensor<6x2xi8>
  return %2 : tensor<6x2xi8>
}

// -----

// The largest value of a window is that of the largest integer.
// CHECK-LABEL: func.func @largest(
// CHECK-NOT:     quantize
// CHECK:         %[[P:.*]] = "relax.max_pool"(%arg0) {{.*}} : (tensor<1x4x8x8xui8>) -> tensor<1x4x4x4xui8>
// CHECK-NEXT:    return %[[P]]
func.func @largest(%x: tensor<1x4x8x8xui8>) -> tensor<1x4x4x4xui8> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<7> : tensor<ui8>} : () -> tensor<ui8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<1x4x8x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x4x8x8xf32>
  %1 = "relax.max_pool"(%0) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  %2 = "relax.quantize"(%1, %s, %z) {dtype = ui8} : (tensor<1x4x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x4x4x4xui8>
  return %2 : tensor<1x4x4x4xui8>
}

// -----

// Maxima that are used elsewhere too are computed once.
// CHECK-LABEL: func.func @largest_used(
// CHECK:         "relax.max_pool"({{.*}}) {{.*}} -> tensor<1x4x4x4xf32>
// CHECK-NOT:     max_pool
func.func @largest_used(%x: tensor<1x4x8x8xui8>) -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xui8>) {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<7> : tensor<ui8>} : () -> tensor<ui8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<1x4x8x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x4x8x8xf32>
  %1 = "relax.max_pool"(%0) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  %2 = "relax.quantize"(%1, %s, %z) {dtype = ui8} : (tensor<1x4x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x4x4x4xui8>
  return %1, %2 : tensor<1x4x4x4xf32>, tensor<1x4x4x4xui8>
}
