// RUN: mirlo-opt %s --to-mixed-precision --split-input-file | FileCheck %s
// RUN: mirlo-opt %s "--to-mixed-precision=dtype=f16 keep=relax.conv,relax.softmax" --split-input-file | FileCheck %s --check-prefix=F16
// RUN: mirlo-opt %s "--to-mixed-precision=operands=constants" --split-input-file | FileCheck %s --check-prefix=CONSTANTS

// Products read bf16 and are summed in f32; what follows one and is read once only is computed from the f32 sums. What
// several operators read lies in memory as bf16; softmax is computed in f32.
// CHECK-LABEL: func.func @mlp(
// CHECK-DAG:     %[[X:.*]] = "relax.cast"(%arg0) {dtype = bf16} : (tensor<8x4xf32>) -> tensor<8x4xbf16>
// CHECK-DAG:     %[[W:.*]] = "relax.cast"(%{{.*}}) {dtype = bf16} : (tensor<4x4xf32>) -> tensor<4x4xbf16>
// CHECK:         %[[P:.*]] = "relax.matmul"(%[[X]], %[[W]]) {out_dtype = f32} : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xf32>
// CHECK-NEXT:    %[[A:.*]] = "relax.add"(%[[P]], %{{.*}}) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:    %[[G:.*]] = "relax.gelu"(%[[A]]) : (tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:    %[[N:.*]] = "relax.cast"(%[[G]]) {dtype = bf16}
// CHECK-NEXT:    %[[S:.*]] = "relax.cast"(%[[N]]) {dtype = f32}
// CHECK-NEXT:    %[[T:.*]] = "relax.softmax"(%[[S]]) {{.*}}-> tensor<8x4xf32>
// CHECK-NEXT:    %[[B:.*]] = "relax.add"(%[[T]], %[[S]])
// CHECK-NEXT:    %[[C:.*]] = "relax.cast"(%[[B]]) {dtype = bf16}
// CHECK-NEXT:    %[[R:.*]] = "relax.matmul"(%[[C]], %[[W]]) {out_dtype = f32}
// CHECK-NEXT:    return %[[R]] : tensor<8x4xf32>
//
// Of constants only, which products widen: everything that is computed stays in f32.
// CONSTANTS-LABEL: func.func @mlp(
// CONSTANTS:         %[[N:.*]] = "relax.cast"(%{{.*}}) {dtype = bf16} : (tensor<4x4xf32>) -> tensor<4x4xbf16>
// CONSTANTS-NEXT:    %[[W:.*]] = "relax.cast"(%[[N]]) {dtype = f32} : (tensor<4x4xbf16>) -> tensor<4x4xf32>
// CONSTANTS-NOT:     relax.cast
// CONSTANTS:         "relax.matmul"(%arg0, %[[W]]) : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
// CONSTANTS-NOT:     relax.cast
// CONSTANTS:         "relax.matmul"(%{{.*}}, %[[W]]) : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
func.func @mlp(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %b = "relax.constant"() {value = dense<0.1> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %1 = "relax.add"(%0, %b) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %2 = "relax.gelu"(%1) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %3 = "relax.softmax"(%2) {axis = -1 : i64} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %4 = "relax.add"(%3, %2) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %5 = "relax.matmul"(%4, %w) : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %5 : tensor<8x4xf32>
}

// -----

// Elements are moved as narrow ones; what no narrow operator feeds stays as it is. What is named stays.
// CHECK-LABEL: func.func @image(
// CHECK:         "relax.exp"(%arg0) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
// CHECK:         "relax.conv"({{.*}}) {out_dtype = f32} : (tensor<1x2x4x4xbf16>, tensor<2x2x1x1xbf16>) -> tensor<1x2x4x4xf32>
// CHECK:         "relax.max_pool"({{.*}}) {{.*}} : (tensor<1x2x4x4xbf16>) -> tensor<1x2x3x3xbf16>
// CHECK-NEXT:    "relax.reshape"({{.*}}-> tensor<2x9xbf16>
// F16-LABEL:   func.func @image(
// F16-NOT:       f16
// F16:           "relax.conv"(%{{.*}}, %{{.*}}) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
func.func @image(%x: tensor<1x2x4x4xf32>) -> tensor<2x9xf32> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<2x2x1x1xf32>} : () -> tensor<2x2x1x1xf32>
  %0 = "relax.exp"(%x) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %1 = "relax.conv"(%0, %w) : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %2 = "relax.max_pool"(%1) {kernel = array<i64: 2, 2>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x3x3xf32>
  %3 = "relax.reshape"(%2) {shape = [2, 9]} : (tensor<1x2x3x3xf32>) -> tensor<2x9xf32>
  return %3 : tensor<2x9xf32>
}

// -----

// A number that f16 does not hold keeps what is computed from it in f32; bf16 holds it.
// CHECK-LABEL: func.func @masked(
// CHECK:         "relax.where"({{.*}}tensor<2x2xf32>
// CHECK-NEXT:    "relax.cast"(%{{.*}}) {dtype = bf16}
// F16-LABEL:   func.func @masked(
// F16:           %[[S:.*]] = "relax.where"({{.*}} -> tensor<2x2xf32>
// F16-NEXT:      "relax.softmax"(%[[S]])
func.func @masked(%c: tensor<2x2xi1>, %x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %m = "relax.constant"() {value = dense<-1.0e9> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.matmul"(%x, %x) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = "relax.where"(%c, %0, %m) : (tensor<2x2xi1>, tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %2 = "relax.softmax"(%1) {axis = -1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %2, %1 : tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// A mask that is added may lie below what the narrow type holds.
// F16-LABEL:   func.func @attention(
// F16:           "relax.maximum"(%arg1, %{{.*}})
// F16-NEXT:      "relax.cast"(%{{.*}}) {dtype = f16}
// F16:           "relax.attention"({{.*}}tensor<1x1x2x2xf16>) -> tensor<1x1x2x4xf16>
func.func @attention(%q: tensor<1x1x2x4xf32>, %m: tensor<1x1x2x2xf32>) -> tensor<1x1x2x4xf32> {
  %0 = "relax.attention"(%q, %q, %q, %m) : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x4xf32>
  return %0 : tensor<1x1x2x4xf32>
}

// -----

// Tables that are read by rows are stored narrow.
// CHECK-LABEL: func.func @embedding(
// CHECK:         "relax.gather"(%{{.*}}, %arg0) {{.*}} -> tensor<3x4xbf16>
func.func @embedding(%i: tensor<3xi64>) -> tensor<3x4xf32> {
  %t = "relax.constant"() {value = dense<0.5> : tensor<8x4xf32>} : () -> tensor<8x4xf32>
  %0 = "relax.gather"(%t, %i) {axis = 0 : i64} : (tensor<8x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// Slices and padding whose sizes are known at run time move narrow elements, as those of static sizes do.
// CHECK-LABEL: func.func @dynamic(
// CHECK:         "relax.slice_dims"({{.*}} : (tensor<?x4xbf16{{.*}} -> tensor<?x4xbf16
// CHECK-NOT:     "relax.cast"
// CHECK:         "relax.matmul"
func.func @dynamic(%x: tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<4x4xf32>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  %1 = "relax.slice_dims"(%0) {begin = ["n - 1", 0], shape = ["n", 4], strides = array<i64: -1, 1>} : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  %2 = "relax.matmul"(%1, %w) : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<4x4xf32>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  return %2 : tensor<?x4xf32, #relax.dims<["n", 4]>>
}
