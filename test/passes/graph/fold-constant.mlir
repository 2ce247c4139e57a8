// RUN: mirlo-opt %s --fold-constant | FileCheck %s
// RUN: mirlo-opt %s --fold-constant=grow=0 | FileCheck %s --check-prefix=GROW

// Operators whose operands are all constants; a small result stands in the IR.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT:    %[[C:.*]] = "relax.constant"() {value = dense<{{\[\[}}2.000000e+00, 8.000000e+00], [4.000000e+00, 1.000000e+01]]> : tensor<2x2xf32>}
// CHECK-NEXT:    return %[[C]]
func.func @chain() -> tensor<2x2xf32> {
  %0 = "relax.constant"() {value = dense<[[1.0, 2.0], [4.0, 5.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = "relax.add"(%1, %1) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %2 : tensor<2x2xf32>
}

// A large one becomes a parameter, named after what it was computed from.
// CHECK-LABEL: func.func @large
// CHECK-NEXT:    "relax.constant"() {param = "constant.expand"} : () -> tensor<4x8xf32>
// GROW-LABEL:  func.func @large
// GROW:          "relax.expand"
func.func @large() -> tensor<4x8xf32> {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<8xf32>} : () -> tensor<8xf32>
  %1 = "relax.expand"(%0) {shape = [4, 8]} : (tensor<8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// Integers and bools keep their meaning: division goes towards zero, comparisons give bools.
// CHECK-LABEL: func.func @integers
// CHECK:         dense<[-3, 3]> : tensor<2xi64>
// CHECK:         dense<[true, false]> : tensor<2xi1>
func.func @integers() -> (tensor<2xi64>, tensor<2xi1>) {
  %0 = "relax.constant"() {value = dense<[-7, 7]> : tensor<2xi64>} : () -> tensor<2xi64>
  %1 = "relax.constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %2 = "relax.divide"(%0, %1) : (tensor<2xi64>, tensor<i64>) -> tensor<2xi64>
  %3 = "relax.less"(%0, %1) : (tensor<2xi64>, tensor<i64>) -> tensor<2xi1>
  return %2, %3 : tensor<2xi64>, tensor<2xi1>
}

// A weight that is shared is folded once, and what was only on the way is not kept.
// CHECK-LABEL: func.func @shared
// CHECK:         "relax.constant"() {param = "constant.permute.reshape"}
// CHECK:         "relax.constant"() {param = "constant.permute.reshape"}
func.func @shared() -> (tensor<20xf32>, tensor<20xf32>) {
  %0 = "relax.constant"() {value = dense<3.0> : tensor<4x5xf32>} : () -> tensor<4x5xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  %2 = "relax.reshape"(%1) {shape = [20]} : (tensor<5x4xf32>) -> tensor<20xf32>
  %3 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  %4 = "relax.reshape"(%3) {shape = [20]} : (tensor<5x4xf32>) -> tensor<20xf32>
  return %2, %4 : tensor<20xf32>, tensor<20xf32>
}

// What depends on an input stays, and so does a parameter whose file is not there; what has no meaning in numpy is
// computed by its kernel.
// CHECK-LABEL: func.func @declined
// CHECK:         "relax.add"
// CHECK-NOT:     "relax.lrn"
// CHECK:         "relax.negative"
func.func @declined(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<1x2x1x1xf32>, tensor<99xf32>) {
  %0 = "relax.constant"() {value = dense<2.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %1 = "relax.add"(%x, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %i = "relax.constant"() {value = dense<2.0> : tensor<1x2x1x1xf32>} : () -> tensor<1x2x1x1xf32>
  %2 = "relax.lrn"(%i) {size = 1 : i64} : (tensor<1x2x1x1xf32>) -> tensor<1x2x1x1xf32>
  %3 = "relax.constant"() {param = "weight"} : () -> tensor<99xf32>
  %4 = "relax.negative"(%3) : (tensor<99xf32>) -> tensor<99xf32>
  return %1, %2, %4 : tensor<2xf32>, tensor<1x2x1x1xf32>, tensor<99xf32>
}

// Numbers are dequantized with scales along an axis, and in blocks.
// CHECK-LABEL: func.func @dequantized
// CHECK-DAG:     dense<{{\[\[}}5.000000e-01, 4.000000e+00], [1.500000e+00, 8.000000e+00]]> : tensor<2x2xf32>
// CHECK-DAG:     dense<[1.000000e+00, 2.000000e+00, 1.200000e+01]> : tensor<3xf32>
func.func @dequantized() -> (tensor<2x2xf32>, tensor<3xf32>) {
  %x = "relax.constant"() {value = dense<[[2, 3], [4, 5]]> : tensor<2x2xui8>} : () -> tensor<2x2xui8>
  %s = "relax.constant"() {value = dense<[0.5, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %z = "relax.constant"() {value = dense<1> : tensor<2xui8>} : () -> tensor<2xui8>
  %0 = "relax.dequantize"(%x, %s, %z) {axis = 1 : i64} : (tensor<2x2xui8>, tensor<2xf32>, tensor<2xui8>) -> tensor<2x2xf32>
  %y = "relax.constant"() {value = dense<[1, 2, 3]> : tensor<3xi8>} : () -> tensor<3xi8>
  %t = "relax.constant"() {value = dense<[1.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %1 = "relax.dequantize"(%y, %t) {axis = 0 : i64, block = 2 : i64} : (tensor<3xi8>, tensor<2xf32>) -> tensor<3xf32>
  return %0, %1 : tensor<2x2xf32>, tensor<3xf32>
}

// Numbers are quantized, saturated, to the nearest even integer; padded; unpacked only with `packed`.
// CHECK-LABEL: func.func @quantized
// CHECK-DAG:     dense<[-128, -2, 0, 2, 127]> : tensor<5xi8>
// CHECK-DAG:     dense<[0, 1, 2, 0]> : tensor<4xi8>
// CHECK-DAG:     "relax.unpack"
func.func @quantized() -> (tensor<5xi8>, tensor<4xi8>, tensor<2xui4>) {
  %x = "relax.constant"() {value = dense<[-99.0, -1.0, 0.25, 0.75, 99.0]> : tensor<5xf32>} : () -> tensor<5xf32>
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.quantize"(%x, %s) {dtype = i8} : (tensor<5xf32>, tensor<f32>) -> tensor<5xi8>
  %y = "relax.constant"() {value = dense<[9, 1, 2]> : tensor<3xi8>} : () -> tensor<3xi8>
  %1 = "relax.pad"(%y) {pads = array<i64: -1, 1>} : (tensor<3xi8>) -> tensor<3xi8>
  %2 = "relax.pad"(%1) {pads = array<i64: 1, 0>} : (tensor<3xi8>) -> tensor<4xi8>
  %b = "relax.constant"() {value = dense<33> : tensor<1xui8>} : () -> tensor<1xui8>
  %3 = "relax.unpack"(%b) {dtype = ui4} : (tensor<1xui8>) -> tensor<2xui4>
  return %0, %2, %3 : tensor<5xi8>, tensor<4xi8>, tensor<2xui4>
}

// An operator without operands and without a meaning in numpy is compiled once, not again in its own compilation.
// CHECK-LABEL: func.func @no_operands(
// CHECK:         "relax.constant"() {value = dense<[3, 1, 7]> : tensor<3xi64>}
// CHECK-NOT:     "relax.dims_tensor"
func.func @no_operands() -> tensor<3xi64> {
  %0 = "relax.dims_tensor"() {dims = [3, 1, 7]} : () -> tensor<3xi64>
  return %0 : tensor<3xi64>
}
