// RUN: mirlo-opt %s --fold-constant='all=true grow=64' | FileCheck %s
// RUN: mirlo-opt %s --fold-constant='all=true grow=64 widens=true' | FileCheck %s --check-prefix=WIDENS
// RUN: mirlo-opt %s --fold-constant='all=true grow=64 packed=true' | FileCheck %s --check-prefix=PACKED
// RUN: mirlo-opt %s --fold-constant='all=true grow=64 explain=true' 2>&1 >/dev/null | FileCheck %s --check-prefix=EXPLAIN

// What an operator needs whole is a constant, whatever its size, with all that it is computed from.
// CHECK-LABEL: func.func @product
// CHECK-NOT:     "relax.expand"
// CHECK-NOT:     "relax.multiply"
// CHECK:         "relax.matmul"
func.func @product(%x: tensor<4x12xf32>) -> tensor<4x16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<12x1xf32>} : () -> tensor<12x1xf32>
  %1 = "relax.constant"() {value = dense<2.0> : tensor<16xf32>} : () -> tensor<16xf32>
  %2 = "relax.expand"(%0) {shape = [12, 16]} : (tensor<12x1xf32>) -> tensor<12x16xf32>
  %3 = "relax.multiply"(%2, %1) : (tensor<12x16xf32>, tensor<16xf32>) -> tensor<12x16xf32>
  %4 = "relax.matmul"(%x, %3) : (tensor<4x12xf32>, tensor<12x16xf32>) -> tensor<4x16xf32>
  return %4 : tensor<4x16xf32>
}

// An elementwise operator computes the elements that it reads.
// CHECK-LABEL: func.func @elementwise
// CHECK:         "relax.expand"
// CHECK:         "relax.add"
// EXPLAIN:       remark: is computed from constants in each call: its readers compute its elements
func.func @elementwise(%x: tensor<12x16xf32>) -> tensor<12x16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<12x1xf32>} : () -> tensor<12x1xf32>
  %2 = "relax.expand"(%0) {shape = [12, 16]} : (tensor<12x1xf32>) -> tensor<12x16xf32>
  %4 = "relax.add"(%x, %2) : (tensor<12x16xf32>, tensor<12x16xf32>) -> tensor<12x16xf32>
  return %4 : tensor<12x16xf32>
}

// A small result of a large one is a constant, even if only elementwise operators read it.
// CHECK-LABEL: func.func @reduced
// CHECK-NOT:     "relax.expand"
// CHECK:         "relax.add"
func.func @reduced(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<12x1xf32>} : () -> tensor<12x1xf32>
  %2 = "relax.expand"(%0) {shape = [12, 16]} : (tensor<12x1xf32>) -> tensor<12x16xf32>
  %3 = "relax.reduce_sum"(%2) {axes = array<i64: 0>, keepdims = false} : (tensor<12x16xf32>) -> tensor<16xf32>
  %4 = "relax.add"(%x, %3) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %4 : tensor<16xf32>
}

// CHECK-LABEL:  func.func @widened
// CHECK-NOT:      "relax.cast"
// CHECK:          "relax.matmul"
// WIDENS-LABEL: func.func @widened
// WIDENS:         "relax.cast"
func.func @widened(%x: tensor<4x12xf32>) -> tensor<4x12xf32> {
  %0 = "relax.constant"() {value = dense<1.0> : tensor<12x12xbf16>} : () -> tensor<12x12xbf16>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<12x12xbf16>) -> tensor<12x12xf32>
  %2 = "relax.matmul"(%x, %1) : (tensor<4x12xf32>, tensor<12x12xf32>) -> tensor<4x12xf32>
  return %2 : tensor<4x12xf32>
}

// CHECK-LABEL:  func.func @packed
// CHECK:          "relax.unpack"
// CHECK:          "relax.dequantize"
// PACKED-LABEL: func.func @packed
// PACKED-NOT:     "relax.dequantize"
// PACKED:         "relax.matmul"
func.func @packed(%x: tensor<4x32xf32>) -> tensor<4x2xf32> {
  %0 = "relax.constant"() {value = dense<33> : tensor<2x16xui8>} : () -> tensor<2x16xui8>
  %1 = "relax.unpack"(%0) {dtype = ui4} : (tensor<2x16xui8>) -> tensor<2x32xui4>
  %s = "relax.constant"() {value = dense<0.5> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %2 = "relax.dequantize"(%1, %s) {axis = 1 : i64, block = 8 : i64} : (tensor<2x32xui4>, tensor<2x4xf32>) -> tensor<2x32xf32>
  %3 = "relax.matmul"(%x, %2) {transpose_rhs = true} : (tensor<4x32xf32>, tensor<2x32xf32>) -> tensor<4x2xf32>
  return %3 : tensor<4x2xf32>
}
