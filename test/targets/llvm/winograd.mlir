// RUN: mirlo-opt %s --winograd="machine=avx512 explain" -o %t 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: FileCheck %s < %t
// RUN: mirlo-opt %s --winograd="machine=avx512 tile=2" | FileCheck %s --check-prefix=TWO
// RUN: mirlo-opt %s --winograd=tile=0 | FileCheck %s --check-prefix=NONE
// RUN: mirlo-opt %s --winograd=machine=avx512 --legalize --schedule=machine=avx512 | FileCheck %s --check-prefix=CODE
// RUN: mirlo-opt %s --winograd=machine=avx2 | FileCheck %s --check-prefix=INT8
// RUN: mirlo-opt %s --winograd="machine=avxvnni explain" -o %t 2>&1 | FileCheck %s --check-prefix=VNNI

// Tiles, a product for each of the 36 elements of a tile, tiles again; the bias stays for fusion.
// WHY:         the convolution is computed in tiles of 4
// CHECK-LABEL: func.func @chosen(
// CHECK:         %[[V:.*]] = "relax.call_tir"(%arg0) {callee = @winograd_input{{.*}} -> tensor<6x6x1x14x14x64xf32>
// CHECK:         %[[R:.*]] = "relax.reshape"(%[[V]]) {{.*}} -> tensor<36x196x64xf32>
// CHECK:         %[[M:.*]] = "relax.matmul"(%[[R]], %{{.*}}) : (tensor<36x196x64xf32>, tensor<36x64x32xf32>)
// CHECK:         %[[P:.*]] = "relax.reshape"(%[[M]]) {{.*}} -> tensor<6x6x1x14x14x32xf32>
// CHECK:         %[[Y:.*]] = "relax.call_tir"(%[[P]]) {callee = @winograd_output{{.*}} -> tensor<1x56x56x32xf32>
// CHECK:         "relax.add"(%[[Y]], %arg1)
// TWO-LABEL:   func.func @chosen(
// TWO:           -> tensor<4x4x1x28x28x64xf32>
// NONE-LABEL:  func.func @chosen(
// NONE-NEXT:     relax.constant
// NONE-NEXT:     relax.conv
// CODE:        func.func private @winograd_input({{.*}}rule = "winograd_input", tile = array<i64: 4, 4>
// CODE:        func.func private @winograd_output({{.*}}rule = "winograd_output", tile = array<i64: 4, 4>
func.func @chosen(%x: tensor<1x56x56x64xf32>, %bias: tensor<32xf32>) -> tensor<1x56x56x32xf32> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<3x3x64x32xf32>} : () -> tensor<3x3x64x32xf32>
  %0 = "relax.conv"(%x, %w, %bias) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<1x56x56x64xf32>, tensor<3x3x64x32xf32>, tensor<32xf32>) -> tensor<1x56x56x32xf32>
  return %0 : tensor<1x56x56x32xf32>
}

// A weight that is an input is transformed in the call.
// CHECK-LABEL: func.func @weight_of_the_call(
// CHECK:         %[[W:.*]] = "relax.reshape"(%arg1) {{.*}} -> tensor<9x2048xf32>
// CHECK:         %[[T:.*]] = "relax.matmul"(%{{.*}}, %[[W]]) : (tensor<36x9xf32>, tensor<9x2048xf32>)
// CHECK:         callee = @winograd_output
// NONE-LABEL:  func.func @weight_of_the_call(
// NONE-NEXT:     relax.conv
func.func @weight_of_the_call(%x: tensor<1x56x56x64xf32>, %w: tensor<3x3x64x32xf32>) -> tensor<1x56x56x32xf32> {
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x56x56x64xf32>, tensor<3x3x64x32xf32>) -> tensor<1x56x56x32xf32>
  return %0 : tensor<1x56x56x32xf32>
}

// The gradient of a weight: the algorithm backwards.
// CHECK-LABEL: func.func @gradient(
// CHECK:         %[[X:.*]] = "relax.call_tir"(%arg0) {callee = @winograd_input{{.*}} -> tensor<6x6x1x14x14x64xf32>
// CHECK:         %[[D:.*]] = "relax.reshape"(%[[X]]) {{.*}} -> tensor<36x196x64xf32>
// CHECK:         %[[G:.*]] = "relax.call_tir"(%arg1) {callee = @winograd_gradient{{.*}} -> tensor<6x6x1x14x14x32xf32>
// CHECK:         %[[R:.*]] = "relax.reshape"(%[[G]]) {{.*}} -> tensor<36x196x32xf32>
// CHECK:         %[[P:.*]] = "relax.matmul"(%[[D]], %[[R]]) {transpose_lhs = true} {{.*}} -> tensor<36x64x32xf32>
// CHECK:         %[[F:.*]] = "relax.reshape"(%[[P]]) {{.*}} -> tensor<36x2048xf32>
// CHECK:         "relax.matmul"(%{{.*}}, %[[F]]) : (tensor<9x36xf32>, tensor<36x2048xf32>)
// NONE-LABEL:  func.func @gradient(
// NONE-NEXT:     relax.conv_weight_gradient
// CODE:        func.func private @winograd_gradient({{.*}}rule = "winograd_gradient", tile = array<i64: 4, 4>
func.func @gradient(%x: tensor<1x56x56x64xf32>, %g: tensor<1x56x56x32xf32>) -> tensor<3x3x64x32xf32> {
  %0 = "relax.conv_weight_gradient"(%x, %g) {window = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x56x56x64xf32>, tensor<1x56x56x32xf32>) -> tensor<3x3x64x32xf32>
  return %0 : tensor<3x3x64x32xf32>
}

// A weight of the call is that of training: a large batch is transformed in groups of images, the weight once.
// CHECK-LABEL: func.func @groups(
// CHECK:         %[[T:.*]] = "relax.matmul"(%{{.*}}, %{{.*}}) : (tensor<36x9xf32>, tensor<9x1024xf32>)
// CHECK:         %[[W:.*]] = "relax.reshape"(%[[T]]) {{.*}} -> tensor<36x32x32xf32>
// CHECK:         %[[X:.*]] = "relax.reshape"(%arg0) {{.*}} -> tensor<8x3x32x32x32xf32>
// CHECK:         %[[ALL:.*]] = "relax.full"() {{.*}} -> tensor<8x3x32x32x32xf32>
// CHECK:         %[[LOOP:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %[[ALL]])
// CHECK:           "relax.gather"(%[[X]],
// CHECK:           callee = @winograd_input{{.*}} -> tensor<6x6x3x8x8x32xf32>
// CHECK:           "relax.matmul"(%{{.*}}, %[[W]])
// CHECK:           callee = @winograd_output{{.*}} -> tensor<3x32x32x32xf32>
// CHECK:           "relax.scatter_nd"
// CHECK:         "relax.reshape"(%[[LOOP]]#1) {{.*}} -> tensor<24x32x32x32xf32>
func.func @groups(%x: tensor<24x32x32x32xf32>, %w: tensor<3x3x32x32xf32>) -> tensor<24x32x32x32xf32> {
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<24x32x32x32xf32>, tensor<3x3x32x32xf32>) -> tensor<24x32x32x32xf32>
  return %0 : tensor<24x32x32x32xf32>
}

// So are gradients of weights; their sums are added before they are transformed to windows.
// CHECK-LABEL: func.func @groups_of_gradients(
// CHECK:         %[[LOOP:.*]]:2 = scf.while
// CHECK:         ^bb0(%{{.*}}, %[[SUM:.*]]: tensor<36x32x32xf32>):
// CHECK:           callee = @winograd_input{{.*}} -> tensor<6x6x3x8x8x32xf32>
// CHECK:           callee = @winograd_gradient{{.*}} -> tensor<6x6x3x8x8x32xf32>
// CHECK:           %[[P:.*]] = "relax.matmul"(%{{.*}}, %{{.*}}) {transpose_lhs = true}
// CHECK:           "relax.add"(%[[SUM]], %[[P]])
// CHECK:         %[[F:.*]] = "relax.reshape"(%[[LOOP]]#1) {{.*}} -> tensor<36x1024xf32>
// CHECK:         "relax.matmul"(%{{.*}}, %[[F]])
func.func @groups_of_gradients(%x: tensor<24x32x32x32xf32>, %g: tensor<24x32x32x32xf32>) -> tensor<3x3x32x32xf32> {
  %0 = "relax.conv_weight_gradient"(%x, %g) {window = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<24x32x32x32xf32>, tensor<24x32x32x32xf32>) -> tensor<3x3x32x32xf32>
  return %0 : tensor<3x3x32x32xf32>
}

// CHECK-LABEL: func.func @declined(
// CHECK-NOT:     callee = @winograd
// CHECK:         return
func.func @declined(%x: tensor<1x7x7x512xf32>, %k: tensor<3x3x512x512xf32>, %y: tensor<1x9x9x24xf32>)
    -> (tensor<1x7x7x512xf32>, tensor<1x7x7x512xf32>, tensor<1x4x4x512xf32>, tensor<1x7x7x32xf32>) {
  %w = "relax.constant"() {value = dense<0.5> : tensor<3x3x512x512xf32>} : () -> tensor<3x3x512x512xf32>
  %v = "relax.constant"() {value = dense<0.5> : tensor<3x3x24x32xf32>} : () -> tensor<3x3x24x32xf32>
  // WHY: stays direct: direct convolution is expected to be as fast (winograd={{[0-9]+}}, direct={{[0-9]+}})
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x7x7x512xf32>, tensor<3x3x512x512xf32>) -> tensor<1x7x7x512xf32>
  // WHY: stays direct: direct convolution is expected to be as fast (winograd={{[0-9]+}}, direct={{[0-9]+}})
  %1 = "relax.conv"(%x, %k) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x7x7x512xf32>, tensor<3x3x512x512xf32>) -> tensor<1x7x7x512xf32>
  // WHY: stays direct: the window is not 3x3 with steps of 1 (window=(3, 3), strides=(2, 2))
  %2 = "relax.conv"(%x, %w) {strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x7x7x512xf32>, tensor<3x3x512x512xf32>) -> tensor<1x4x4x512xf32>
  // WHY: stays direct: the channels fill no whole vectors (channels=24, out_channels=32)
  %3 = "relax.conv"(%y, %v) {data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x9x9x24xf32>, tensor<3x3x24x32xf32>) -> tensor<1x7x7x32xf32>
  return %0, %1, %2, %3 : tensor<1x7x7x512xf32>, tensor<1x7x7x512xf32>, tensor<1x4x4x512xf32>, tensor<1x7x7x32xf32>
}
// CHECK:       func.func private @winograd_input({{.*}}) -> {{.*}} attributes {tir.kind = "opaque"
// CHECK:       func.func private @winograd_output({{.*}}) -> {{.*}} attributes {tir.kind = "contraction"

// Windows of int8 are multiplied to integers of 16 bits; results are too large by 9 * 64, modulo 2^32.
// INT8-LABEL:  func.func @int8(
// INT8:          %[[V:.*]] = "relax.call_tir"(%arg0) {callee = @winograd_input{{.*}} -> tensor<6x6x1x14x14x64xi16>
// INT8:          %[[R:.*]] = "relax.reshape"(%[[V]]) {{.*}} -> tensor<36x196x64xi16>
// INT8:          %[[M:.*]] = "relax.matmul"(%[[R]], %{{.*}}) {{.*}} : (tensor<36x196x64xi16>, tensor<36x64x64xi16>) -> tensor<36x196x64xi32>
// INT8:          %[[P:.*]] = "relax.reshape"(%[[M]]) {{.*}} -> tensor<6x6x1x14x14x64xi32>
// INT8:          %[[Y:.*]] = "relax.call_tir"(%[[P]]) {callee = @winograd_output{{.*}} -> tensor<1x56x56x64xi32>
// INT8:          %[[F:.*]] = "relax.multiply"(%[[Y]], %{{.*}})
// INT8:          "relax.shift_right"(%[[F]], %{{.*}})
// INT8-LABEL:  func.func @deep(
// INT8-NOT:      callee = @winograd
// INT8:          return
// VNNI:        stays direct: direct products of int8 take no more instructions (machine=avxvnni)
func.func @int8(%x: tensor<1x56x56x64xui8>) -> tensor<1x56x56x64xi32> {
  %w = "relax.constant"() {value = dense<3> : tensor<3x3x64x64xi8>} : () -> tensor<3x3x64x64xi8>
  %0 = "relax.conv"(%x, %w) {out_dtype = i32, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x56x56x64xui8>, tensor<3x3x64x64xi8>) -> tensor<1x56x56x64xi32>
  return %0 : tensor<1x56x56x64xi32>
}

// Larger results are not known from what 32 bits hold of their multiples.
// WHY:         stays direct: results may be too large for exact quotients of 32 bits (largest=540959040)
func.func @deep(%x: tensor<1x56x56x1856xui8>) -> tensor<1x56x56x64xi32> {
  %w = "relax.constant"() {value = dense<127> : tensor<3x3x1856x64xi8>} : () -> tensor<3x3x1856x64xi8>
  %0 = "relax.conv"(%x, %w) {out_dtype = i32, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x56x56x1856xui8>, tensor<3x3x1856x64xi8>) -> tensor<1x56x56x64xi32>
  return %0 : tensor<1x56x56x64xi32>
}

// Gradients come after all convolutions.
// WHY:         the gradient is computed in tiles of 4
