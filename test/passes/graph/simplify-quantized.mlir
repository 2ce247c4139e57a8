// RUN: mirlo-opt %s --simplify --fold-constant --remove-dead --split-input-file | FileCheck %s

// Dequantized operands are multiplied as bytes; the zero point of the data goes into a constant per column, the scales
// into one factor. What follows stays.
// CHECK-LABEL: func.func @qdq(
// CHECK:         %[[W:.*]] = "relax.constant"() {value = dense<{{\[\[}}1, -2], [3, 4]]> : tensor<2x2xi8>}
// CHECK:         %[[P:.*]] = "relax.matmul"(%arg0, %[[W]]) {out_dtype = i32} : (tensor<3x2xui8>, tensor<2x2xi8>) -> tensor<3x2xi32>
// CHECK:         %[[Z:.*]] = "relax.constant"() {value = dense<{{\[\[}}40, 20]]> : tensor<1x2xi32>}
// CHECK:         %[[T:.*]] = "relax.subtract"(%[[P]], %[[Z]])
// CHECK:         %[[S:.*]] = "relax.constant"() {value = dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>}
// CHECK:         %[[F:.*]] = "relax.cast"(%[[T]]) {dtype = f32}
// CHECK:         %[[R:.*]] = "relax.multiply"(%[[F]], %[[S]])
// CHECK:         return %[[R]]
func.func @qdq(%x: tensor<3x2xui8>) -> tensor<3x2xf32> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<10> : tensor<ui8>} : () -> tensor<ui8>
  %w = "relax.constant"() {value = dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>} : () -> tensor<2x2xi8>
  %ws = "relax.constant"() {value = dense<[2.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<3x2xui8>, tensor<f32>, tensor<ui8>) -> tensor<3x2xf32>
  %1 = "relax.dequantize"(%w, %ws) {axis = 1 : i64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %2 = "relax.matmul"(%0, %1) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}

// -----

// Weights without a sign become such with one where their zero point allows it.
// CHECK-LABEL: func.func @unsigned(
// CHECK-DAG:     %[[W:.*]] = "relax.constant"() {value = dense<{{\[\[}}1, -128], [127, 0]]> : tensor<2x2xi8>}
// CHECK:         %[[P:.*]] = "relax.matmul"(%arg0, %[[W]]) {out_dtype = i32} : (tensor<3x2xi8>, tensor<2x2xi8>) -> tensor<3x2xi32>
// CHECK-NEXT:    return %[[P]]
func.func @unsigned(%x: tensor<3x2xi8>) -> tensor<3x2xi32> {
  %w = "relax.constant"() {value = dense<[[129, 0], [255, 128]]> : tensor<2x2xui8>} : () -> tensor<2x2xui8>
  %z = "relax.constant"() {value = dense<128> : tensor<i32>} : () -> tensor<i32>
  %0 = "relax.cast"(%x) {dtype = i32} : (tensor<3x2xi8>) -> tensor<3x2xi32>
  %1 = "relax.cast"(%w) {dtype = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
  %2 = "relax.subtract"(%1, %z) : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
  %3 = "relax.matmul"(%0, %2) : (tensor<3x2xi32>, tensor<2x2xi32>) -> tensor<3x2xi32>
  return %3 : tensor<3x2xi32>
}

// -----

// Images are padded with what stands for zero; the sum of the weights goes into the bias.
// CHECK-LABEL: func.func @image(
// CHECK:         %[[X:.*]] = "relax.pad"(%arg0) {pads = array<i64: 0, 0, 1, 1, 0, 0, 1, 1>, value = 3.000000e+00 : f64}
// CHECK:         %[[B:.*]] = "relax.constant"() {value = dense<-54> : tensor<1xi32>}
// CHECK:         "relax.conv"(%[[X]], %{{.*}}, %[[B]]) {{.*}}out_dtype = i32{{.*}} : (tensor<1x1x6x6xui8>, tensor<1x1x3x3xi8>, tensor<1xi32>) -> tensor<1x1x4x4xi32>
func.func @image(%x: tensor<1x1x4x4xui8>) -> tensor<1x1x4x4xf32> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<3> : tensor<ui8>} : () -> tensor<ui8>
  %w = "relax.constant"() {value = dense<2> : tensor<1x1x3x3xi8>} : () -> tensor<1x1x3x3xi8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %1 = "relax.dequantize"(%w, %s) : (tensor<1x1x3x3xi8>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %2 = "relax.conv"(%0, %1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xf32>, tensor<1x1x3x3xf32>) -> tensor<1x1x4x4xf32>
  return %2 : tensor<1x1x4x4xf32>
}

// -----

// The same of images whose number and size are known at run time.
// CHECK-LABEL: func.func @dynamic_image(
// CHECK:         %[[X:.*]] = "relax.pad"(%arg0) {pads = array<i64: 0, 0, 1, 1, 0, 0, 1, 1>, value = 3.000000e+00 : f64}
// CHECK:         "relax.conv"(%[[X]], %{{.*}}, %{{.*}}) {{.*}}out_dtype = i32{{.*}} -> tensor<?x1x?x4xi32, #relax.dims<["n", 1, "h", 4]>>
func.func @dynamic_image(%x: tensor<?x1x?x4xui8, #relax.dims<["n", 1, "h", 4]>>) -> tensor<?x1x?x4xf32, #relax.dims<["n", 1, "h", 4]>> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<3> : tensor<ui8>} : () -> tensor<ui8>
  %w = "relax.constant"() {value = dense<2> : tensor<1x1x3x3xi8>} : () -> tensor<1x1x3x3xi8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<?x1x?x4xui8, #relax.dims<["n", 1, "h", 4]>>, tensor<f32>, tensor<ui8>) -> tensor<?x1x?x4xf32, #relax.dims<["n", 1, "h", 4]>>
  %1 = "relax.dequantize"(%w, %s) : (tensor<1x1x3x3xi8>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %2 = "relax.conv"(%0, %1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<?x1x?x4xf32, #relax.dims<["n", 1, "h", 4]>>, tensor<1x1x3x3xf32>) -> tensor<?x1x?x4xf32, #relax.dims<["n", 1, "h", 4]>>
  return %2 : tensor<?x1x?x4xf32, #relax.dims<["n", 1, "h", 4]>>
}

// -----

// A scale for each product of a sum cannot leave it.
// CHECK-LABEL: func.func @along_the_sum(
// CHECK:         "relax.matmul"({{.*}}) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
func.func @along_the_sum(%x: tensor<3x2xui8>) -> tensor<3x2xf32> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %w = "relax.constant"() {value = dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>} : () -> tensor<2x2xi8>
  %ws = "relax.constant"() {value = dense<[2.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.dequantize"(%x, %s) : (tensor<3x2xui8>, tensor<f32>) -> tensor<3x2xf32>
  %1 = "relax.dequantize"(%w, %ws) {axis = 0 : i64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %2 = "relax.matmul"(%0, %1) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}

// -----

// Where the zero point of the weights does not fit, what each window sums up to is computed as one more channel.
// CHECK-LABEL: func.func @wide_weights(
// CHECK:         %[[T:.*]] = "relax.conv"(%arg0, %{{.*}}, %{{.*}}) {out_dtype = i32} : (tensor<1x1x4x4xui8>, tensor<2x1x1x1xi8>, tensor<2xi32>)
// CHECK:         %[[S:.*]] = "relax.conv"(%arg0, %{{.*}}) {{.*}}(tensor<1x1x4x4xui8>, tensor<1x1x1x1xi8>) -> tensor<1x1x4x4xi32>
// CHECK:         %[[M:.*]] = "relax.multiply"(%[[S]], %{{.*}})
// CHECK:         "relax.subtract"(%[[T]], %[[M]])
func.func @wide_weights(%x: tensor<1x1x4x4xui8>) -> tensor<1x2x4x4xf32> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "relax.constant"() {value = dense<3> : tensor<ui8>} : () -> tensor<ui8>
  %w = "relax.constant"() {value = dense<[[[[0]]], [[[255]]]]> : tensor<2x1x1x1xui8>} : () -> tensor<2x1x1x1xui8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %1 = "relax.dequantize"(%w, %s, %z) : (tensor<2x1x1x1xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x1x1x1xf32>
  %2 = "relax.conv"(%0, %1) : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  return %2 : tensor<1x2x4x4xf32>
}

// -----

// A scale and a zero point may be computed at run time: the columns of the weights are summed up before.
// CHECK-LABEL: func.func @dynamically_quantized(
// CHECK:         %[[P:.*]] = "relax.matmul"(%arg0, %{{.*}}) {out_dtype = i32} : (tensor<3x2xui8>, tensor<2x2xi8>) -> tensor<3x2xi32>
// CHECK:         %[[C:.*]] = "relax.constant"() {value = dense<{{\[\[}}4, 2]]> : tensor<1x2xi32>}
// CHECK:         %[[Z:.*]] = "relax.cast"(%arg2) {dtype = i32}
// CHECK:         %[[M:.*]] = "relax.multiply"(%[[C]], %[[Z]])
// CHECK:         "relax.subtract"(%[[P]], %[[M]])
// CHECK:         "relax.multiply"(%arg1, %{{.*}}) : (tensor<f32>, tensor<2xf32>) -> tensor<2xf32>
func.func @dynamically_quantized(%x: tensor<3x2xui8>, %s: tensor<f32>, %z: tensor<ui8>) -> tensor<3x2xf32> {
  %w = "relax.constant"() {value = dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>} : () -> tensor<2x2xi8>
  %ws = "relax.constant"() {value = dense<[2.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<3x2xui8>, tensor<f32>, tensor<ui8>) -> tensor<3x2xf32>
  %1 = "relax.dequantize"(%w, %ws) {axis = 1 : i64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %2 = "relax.matmul"(%0, %1) : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}

// -----

// The border of an image is zero: it is filled with the zero point, so that all windows have the same sum of weights.
// CHECK-LABEL: func.func @border(
// CHECK-DAG:     %[[P:.*]] = "relax.pad"(%arg0) {{.*}} -> tensor<1x1x6x6xui8>
// CHECK-DAG:     %[[I:.*]] = "relax.constant"() {{.*}} -> tensor<1x1x6x6xi1>
// CHECK:         %[[X:.*]] = "relax.where"(%[[I]], %[[P]], %arg1) : (tensor<1x1x6x6xi1>, tensor<1x1x6x6xui8>, tensor<ui8>)
// CHECK:         %[[T:.*]] = "relax.conv"(%[[X]], %{{.*}}) {{.*}}out_dtype = i32{{.*}} : (tensor<1x1x6x6xui8>, tensor<1x1x3x3xi8>) -> tensor<1x1x4x4xi32>
// CHECK:         %[[S:.*]] = "relax.constant"() {value = dense<18> : tensor<1x1x1x1xi32>}
// CHECK:         %[[Z:.*]] = "relax.cast"(%arg1) {dtype = i32}
// CHECK:         %[[M:.*]] = "relax.multiply"(%[[S]], %[[Z]])
// CHECK:         "relax.subtract"(%[[T]], %[[M]])
// CHECK-NOT:     "relax.conv"
func.func @border(%x: tensor<1x1x4x4xui8>, %z: tensor<ui8>) -> tensor<1x1x4x4xf32> {
  %s = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %w = "relax.constant"() {value = dense<2> : tensor<1x1x3x3xi8>} : () -> tensor<1x1x3x3xi8>
  %0 = "relax.dequantize"(%x, %s, %z) : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %1 = "relax.dequantize"(%w, %s) : (tensor<1x1x3x3xi8>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %2 = "relax.conv"(%0, %1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xf32>, tensor<1x1x3x3xf32>) -> tensor<1x1x4x4xf32>
  return %2 : tensor<1x1x4x4xf32>
}

// -----

// Where the image is quantized here, for this convolution alone, zero is the border before: no image of the border is read.
// CHECK-LABEL: func.func @border_before(
// CHECK-NOT:     "relax.where"
// CHECK:         %[[P:.*]] = "relax.pad"(%arg0) {{.*}} : (tensor<1x1x4x4xf32>) -> tensor<1x1x6x6xf32>
// CHECK:         %[[X:.*]] = "relax.quantize"(%[[P]], %arg1, %arg2) {dtype = ui8} : (tensor<1x1x6x6xf32>, tensor<f32>, tensor<ui8>)
// CHECK:         "relax.conv"(%[[X]], %{{.*}}) {{.*}}out_dtype = i32
func.func @border_before(%x: tensor<1x1x4x4xf32>, %s: tensor<f32>, %z: tensor<ui8>) -> tensor<1x1x4x4xf32> {
  %w = "relax.constant"() {value = dense<2> : tensor<1x1x3x3xi8>} : () -> tensor<1x1x3x3xi8>
  %ws = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %q = "relax.quantize"(%x, %s, %z) {dtype = ui8} : (tensor<1x1x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xui8>
  %0 = "relax.dequantize"(%q, %s, %z) : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %1 = "relax.dequantize"(%w, %ws) : (tensor<1x1x3x3xi8>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %2 = "relax.conv"(%0, %1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xf32>, tensor<1x1x3x3xf32>) -> tensor<1x1x4x4xf32>
  return %2 : tensor<1x1x4x4xf32>
}

// -----

// Another reader of the bytes: they are quantized once, and padded after.
// CHECK-LABEL: func.func @border_of_two_readers(
// CHECK:         %[[X:.*]] = "relax.quantize"(%arg0, %arg1, %arg2)
// CHECK:         "relax.pad"(%[[X]])
// CHECK:         "relax.where"
func.func @border_of_two_readers(%x: tensor<1x1x4x4xf32>, %s: tensor<f32>, %z: tensor<ui8>) -> (tensor<1x1x4x4xf32>, tensor<1x1x4x4xui8>) {
  %w = "relax.constant"() {value = dense<2> : tensor<1x1x3x3xi8>} : () -> tensor<1x1x3x3xi8>
  %ws = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %q = "relax.quantize"(%x, %s, %z) {dtype = ui8} : (tensor<1x1x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xui8>
  %0 = "relax.dequantize"(%q, %s, %z) : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %1 = "relax.dequantize"(%w, %ws) : (tensor<1x1x3x3xi8>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %2 = "relax.conv"(%0, %1) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xf32>, tensor<1x1x3x3xf32>) -> tensor<1x1x4x4xf32>
  return %2, %q : tensor<1x1x4x4xf32>, tensor<1x1x4x4xui8>
}
