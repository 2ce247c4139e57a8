// RUN: mirlo-opt %s --convert-layout --split-input-file | FileCheck %s

// From the input to the global mean all permutes cancel: one is left at the entry, and the mean needs none at the exit.
// CHECK-LABEL: func.func @network(
// CHECK:         %[[X:.*]] = "relax.permute"(%arg0) {axes = array<i64: 0, 2, 3, 1>, relax.layout}
// CHECK:         %[[C:.*]] = "relax.conv"(%[[X]], %{{.*}}) {data_layout = "N*C", kernel_layout = "*IO", {{.*}} -> tensor<1x8x8x4xf32>
// CHECK:         %[[R:.*]] = "relax.relu"(%[[C]])
// CHECK:         %[[A:.*]] = "relax.add"(%[[R]], %[[C]])
// CHECK:         %[[M:.*]] = "relax.max_pool"(%[[A]]) {data_layout = "N*C", {{.*}} -> tensor<1x7x7x4xf32>
// CHECK:         %[[K:.*]] = "relax.concat"(%[[M]], %[[M]]) {axis = 3
// CHECK:         %[[G:.*]] = "relax.reduce_mean"(%[[K]]) {axes = array<i64: 1, 2>} : (tensor<1x7x7x8xf32>) -> tensor<1x8xf32>
// CHECK-NEXT:    return %[[G]]
func.func @network(%x: tensor<1x3x8x8xf32>) -> tensor<1x8xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x3x3xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.relu"(%0) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.add"(%1, %0) : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = "relax.max_pool"(%2) {kernel = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x7x7xf32>
  %4 = "relax.concat"(%3, %3) {axis = 1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x4x7x7xf32>, tensor<1x4x7x7xf32>) -> tensor<1x8x7x7xf32>
  %5 = "relax.reduce_mean"(%4) {axes = array<i64: 2, 3>} : (tensor<1x8x7x7xf32>) -> tensor<1x8xf32>
  return %5 : tensor<1x8xf32>
}

// -----

// A pool with the positions of its maxima takes the layout of the convolution before it: its results are permuted.
// CHECK-LABEL: func.func @pool_with_indices(
// CHECK:         %[[C:.*]] = "relax.conv"(%{{.*}}) {data_layout = "N*C"
// CHECK:         %[[M:.*]]:2 = "relax.max_pool_with_indices"(%[[C]]) {data_layout = "N*C", {{.*}} -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi64>)
// CHECK:         "relax.permute"(%[[M]]#1) {axes = array<i64: 0, 3, 1, 2>, relax.layout}
// CHECK:         "relax.conv"(%[[M]]#0, %{{.*}}) {data_layout = "N*C"
func.func @pool_with_indices(%x: tensor<1x3x8x8xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi64>) {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x3x3xf32>
  %v = "relax.constant"() {param = "v"} : () -> tensor<4x4x3x3xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  %1:2 = "relax.max_pool_with_indices"(%0) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi64>)
  %2 = "relax.conv"(%1#0, %v) {padding = array<i64: 1, 1, 1, 1>} : (tensor<1x4x4x4xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x4x4xf32>
  return %2, %1#1 : tensor<1x4x4x4xf32>, tensor<1x4x4x4xi64>
}

// -----

// Kernels are permuted to window, in, out; a bias per channel is permuted where it has dims to permute.
// CHECK-LABEL: func.func @operands(
// CHECK:         "relax.permute"(%{{.*}}) {axes = array<i64: 2, 3, 1, 0>} : (tensor<4x3x1x1xf32>) -> tensor<1x1x3x4xf32>
// CHECK:         %[[C:.*]] = "relax.conv"
// CHECK:         "relax.multiply"(%[[C]], %{{.*}}) : (tensor<1x8x8x4xf32>, tensor<1x1x1x4xf32>)
// CHECK:         "relax.pad"(%{{.*}}) {pads = array<i64: 0, 1, 2, 0, 0, 3, 4, 0>} : (tensor<1x8x8x4xf32>) -> tensor<1x12x14x4xf32>
// CHECK:         %[[Y:.*]] = "relax.permute"(%{{.*}}) {axes = array<i64: 0, 3, 1, 2>, relax.layout}
// CHECK:         return %[[Y]]
func.func @operands(%x: tensor<1x3x8x8xf32>, %scale: tensor<4x1x1xf32>) -> tensor<1x4x12x14xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.multiply"(%0, %scale) : (tensor<1x4x8x8xf32>, tensor<4x1x1xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.pad"(%1) {pads = array<i64: 0, 0, 1, 2, 0, 0, 3, 4>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x12x14xf32>
  return %2 : tensor<1x4x12x14xf32>
}

// -----

// Operators with axes name them anew; a decoder that resizes, slices and takes the largest channel needs no permute.
// CHECK-LABEL: func.func @axes(
// CHECK:         %[[P:.*]] = "relax.prelu"(%{{.*}}, %{{.*}}) : (tensor<1x8x8x4xf32>, tensor<1x1x1x4xf32>)
// CHECK:         %[[R:.*]] = "relax.resize"(%[[P]]) {mode = "linear", scales = array<f64: {{.*}}>, shape = [1, 16, 16, 4]}
// CHECK:         %[[S:.*]] = "relax.strided_slice"(%[[R]]) {axes = array<i64: 3>
// CHECK:         %[[E:.*]] = "relax.softmax"(%[[S]]) {axis = 3 : i64} : (tensor<1x16x16x2xf32>)
// CHECK:         %[[Y:.*]] = "relax.argmax"(%[[E]]) {axis = 3 : i64, keepdims = false} : (tensor<1x16x16x2xf32>) -> tensor<1x16x16xi64>
// CHECK-NEXT:    return %[[Y]]
func.func @axes(%x: tensor<1x3x8x8xf32>) -> tensor<1x16x16xi64> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x1x1xf32>
  %slope = "relax.constant"() {value = dense<0.5> : tensor<1x4x1x1xf32>} : () -> tensor<1x4x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.prelu"(%0, %slope) : (tensor<1x4x8x8xf32>, tensor<1x4x1x1xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.resize"(%1) {mode = "linear", shape = [1, 4, 16, 16], scales = array<f64: 1.0, 1.0, 2.0, 2.0>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x16x16xf32>
  %3 = "relax.strided_slice"(%2) {axes = array<i64: 1>, begin = array<i64: 0>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<1x4x16x16xf32>) -> tensor<1x2x16x16xf32>
  %4 = "relax.softmax"(%3) {axis = 1 : i64} : (tensor<1x2x16x16xf32>) -> tensor<1x2x16x16xf32>
  %5 = "relax.argmax"(%4) {axis = 1 : i64, keepdims = false} : (tensor<1x2x16x16xf32>) -> tensor<1x16x16xi64>
  return %5 : tensor<1x16x16xi64>
}

// -----

// A slice whose sizes are known at run time names its axes anew as well.
// CHECK-LABEL: func.func @open_slice(
// CHECK:         "relax.slice_dims"({{.*}}) {begin = [0, 7, 0, 3], shape = ["n", 4, 8, 2], strides = array<i64: 1, -2, 1, 2>}
func.func @open_slice(%x: tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>) -> tensor<?x2x4x8xf32, #relax.dims<["n", 2, 4, 8]>> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<8x4x3x3xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>} : (tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>, tensor<8x4x3x3xf32>) -> tensor<?x8x8x8xf32, #relax.dims<["n", 8, 8, 8]>>
  %1 = "relax.slice_dims"(%0) {begin = [0, 3, 7, 0], shape = ["n", 2, 4, 8], strides = array<i64: 1, 2, -2, 1>} : (tensor<?x8x8x8xf32, #relax.dims<["n", 8, 8, 8]>>) -> tensor<?x2x4x8xf32, #relax.dims<["n", 2, 4, 8]>>
  return %1 : tensor<?x2x4x8xf32, #relax.dims<["n", 2, 4, 8]>>
}

// -----

// Pixels that become the words of a transformer: no permute is left.
// CHECK-LABEL: func.func @words(
// CHECK:         %[[C:.*]] = "relax.conv"(%{{.*}}) {data_layout = "N*C", {{.*}} -> tensor<1x4x4x16xf32>
// CHECK-NEXT:    %[[R:.*]] = "relax.reshape"(%[[C]]) {shape = [1, 16, 16]}
// CHECK-NEXT:    return %[[R]]
func.func @words(%x: tensor<1x3x8x8xf32>) -> tensor<1x16x16xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<16x3x2x2xf32>
  %0 = "relax.conv"(%x, %w) {strides = array<i64: 2, 2>} : (tensor<1x3x8x8xf32>, tensor<16x3x2x2xf32>) -> tensor<1x16x4x4xf32>
  %1 = "relax.reshape"(%0) {shape = [1, 16, 16]} : (tensor<1x16x4x4xf32>) -> tensor<1x16x16xf32>
  %2 = "relax.permute"(%1) {axes = array<i64: 0, 2, 1>} : (tensor<1x16x16xf32>) -> tensor<1x16x16xf32>
  return %2 : tensor<1x16x16xf32>
}

// -----

// What declines: weights that are computed, a pool whose input has no layout yet, an operand as large that would need a
// permute of its own, a permute that the user wrote.
// CHECK-LABEL: func.func @declined(
// CHECK:         "relax.conv"(%arg0, %arg1) :
// CHECK:         "relax.max_pool"(%arg0) {kernel
// CHECK:         %[[C:.*]] = "relax.conv"(%{{.*}}) {data_layout = "N*C"
// CHECK:         %[[P:.*]] = "relax.permute"(%[[C]]) {axes = array<i64: 0, 3, 1, 2>, relax.layout}
// CHECK:         "relax.add"(%[[P]], %arg0)
func.func @declined(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x1x1xf32>) -> (tensor<1x4x8x8xf32>, tensor<1x3x7x7xf32>, tensor<1x3x8x8xf32>) {
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.max_pool"(%x) {kernel = array<i64: 2, 2>} : (tensor<1x3x8x8xf32>) -> tensor<1x3x7x7xf32>
  %k = "relax.constant"() {value = dense<2.0> : tensor<3x3x1x1xf32>} : () -> tensor<3x3x1x1xf32>
  %2 = "relax.conv"(%x, %k) : (tensor<1x3x8x8xf32>, tensor<3x3x1x1xf32>) -> tensor<1x3x8x8xf32>
  %3 = "relax.add"(%2, %x) : (tensor<1x3x8x8xf32>, tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32>
  return %0, %1, %3 : tensor<1x4x8x8xf32>, tensor<1x3x7x7xf32>, tensor<1x3x8x8xf32>
}

// -----

// Sizes that are not known move along as symbols.
// CHECK-LABEL: func.func @symbolic(
// CHECK:         "relax.conv"(%{{.*}}) {data_layout = "N*C", {{.*}} -> tensor<?x?x8x4xf32, #relax.dims<["n", "h", 8, 4]>>
// CHECK:         "relax.relu"(%{{.*}}) : (tensor<?x?x8x4xf32, #relax.dims<["n", "h", 8, 4]>>)
func.func @symbolic(%x: tensor<?x3x?x8xf32, #relax.dims<["n", 3, "h", 8]>>) -> tensor<?x4x?x8xf32, #relax.dims<["n", 4, "h", 8]>> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<?x3x?x8xf32, #relax.dims<["n", 3, "h", 8]>>, tensor<4x3x1x1xf32>) -> tensor<?x4x?x8xf32, #relax.dims<["n", 4, "h", 8]>>
  %1 = "relax.relu"(%0) : (tensor<?x4x?x8xf32, #relax.dims<["n", 4, "h", 8]>>) -> tensor<?x4x?x8xf32, #relax.dims<["n", 4, "h", 8]>>
  return %1 : tensor<?x4x?x8xf32, #relax.dims<["n", 4, "h", 8]>>
}

// -----

// A permute sinks below a product with a constant per channel, also if the size of the batch is not known, and no
// permute of the constant sinks in turn.
// CHECK-LABEL: func.func @symbolic_scale(
// CHECK:         "relax.permute"(%arg0)
// CHECK:         %[[S:.*]] = "relax.multiply"(%{{.*}}, %{{.*}}) : (tensor<?x8x8x4xf32, #relax.dims<["n", 8, 8, 4]>>, tensor<1x1x1x4xf32>)
// CHECK:         %[[B:.*]] = "relax.add"(%[[S]], %{{.*}}) : (tensor<?x8x8x4xf32, #relax.dims<["n", 8, 8, 4]>>, tensor<?x1x1x4xf32, #relax.dims<["n", 1, 1, 4]>>)
// CHECK-NOT:     relax.layout
// CHECK:         "relax.conv"(%[[B]], %{{.*}}) {data_layout = "N*C"
func.func @symbolic_scale(%x: tensor<?x3x8x8xf32, #relax.dims<["n", 3, 8, 8]>>, %y: tensor<?x4x1x1xf32, #relax.dims<["n", 4, 1, 1]>>) -> tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x1x1xf32>
  %s = "relax.constant"() {param = "s"} : () -> tensor<1x4x1x1xf32>
  %v = "relax.constant"() {param = "v"} : () -> tensor<4x4x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<?x3x8x8xf32, #relax.dims<["n", 3, 8, 8]>>, tensor<4x3x1x1xf32>) -> tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>
  %1 = "relax.multiply"(%0, %s) : (tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>, tensor<1x4x1x1xf32>) -> tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>
  %2 = "relax.add"(%1, %y) : (tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>, tensor<?x4x1x1xf32, #relax.dims<["n", 4, 1, 1]>>) -> tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>
  %3 = "relax.conv"(%2, %v) : (tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>, tensor<4x4x1x1xf32>) -> tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>
  return %3 : tensor<?x4x8x8xf32, #relax.dims<["n", 4, 8, 8]>>
}

// -----

// The permute of an argument whose channels are last in memory sinks like those of convolutions: a sum of it is one of
// columns. A permute of another order, of a value that is computed, or of few dims stays.
// CHECK-LABEL: func.func @channels_last_argument(
// CHECK:         "relax.add"(%arg0, %arg0) : (tensor<2x5x6x8xf32>
// CHECK:         "relax.reduce_sum"(%{{.*}}) {axes = array<i64: 0, 1, 2>} : (tensor<2x5x6x8xf32>) -> tensor<8xf32>
// CHECK:         %[[P:.*]] = "relax.permute"(%arg1) {axes = array<i64: 1, 0, 2, 3>}
// CHECK:         "relax.negative"(%[[P]])
// CHECK:         %[[Q:.*]] = "relax.permute"(%arg2) {axes = array<i64: 0, 2, 1>}
// CHECK:         "relax.negative"(%[[Q]])
func.func @channels_last_argument(%x: tensor<2x5x6x8xf32>, %y: tensor<2x5x6x8xf32>, %z: tensor<2x5x6xf32>) -> (tensor<8xf32>, tensor<5x2x6x8xf32>, tensor<2x6x5xf32>) {
  %0 = "relax.permute"(%x) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x5x6x8xf32>) -> tensor<2x8x5x6xf32>
  %1 = "relax.add"(%0, %0) : (tensor<2x8x5x6xf32>, tensor<2x8x5x6xf32>) -> tensor<2x8x5x6xf32>
  %2 = "relax.reduce_sum"(%1) {axes = array<i64: 0, 2, 3>} : (tensor<2x8x5x6xf32>) -> tensor<8xf32>
  %3 = "relax.permute"(%y) {axes = array<i64: 1, 0, 2, 3>} : (tensor<2x5x6x8xf32>) -> tensor<5x2x6x8xf32>
  %4 = "relax.negative"(%3) : (tensor<5x2x6x8xf32>) -> tensor<5x2x6x8xf32>
  %5 = "relax.permute"(%z) {axes = array<i64: 0, 2, 1>} : (tensor<2x5x6xf32>) -> tensor<2x6x5xf32>
  %6 = "relax.negative"(%5) : (tensor<2x6x5xf32>) -> tensor<2x6x5xf32>
  return %2, %4, %6 : tensor<8xf32>, tensor<5x2x6x8xf32>, tensor<2x6x5xf32>
}

// -----

// So does the permute of a view, as where windows become an image; that of a value of the same shape stays.
// CHECK-LABEL: func.func @channels_last_view(
// CHECK:         %[[V:.*]] = "relax.reshape"(%arg0) {{.*}} -> tensor<2x4x6x8xf32>
// CHECK:         "relax.negative"(%[[V]]) : (tensor<2x4x6x8xf32>
// CHECK:         %[[E:.*]] = "relax.exp"(%arg1)
// CHECK:         %[[P:.*]] = "relax.permute"(%[[E]]) {axes = array<i64: 0, 3, 1, 2>}
// CHECK:         "relax.negative"(%[[P]]) : (tensor<2x8x4x6xf32>
func.func @channels_last_view(%x: tensor<2x2x2x3x2x8xf32>, %y: tensor<2x4x6x8xf32>) -> (tensor<2x8x4x6xf32>, tensor<2x8x4x6xf32>) {
  %0 = "relax.reshape"(%x) {shape = [2, 4, 6, 8]} : (tensor<2x2x2x3x2x8xf32>) -> tensor<2x4x6x8xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x4x6x8xf32>) -> tensor<2x8x4x6xf32>
  %2 = "relax.negative"(%1) : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %3 = "relax.exp"(%y) : (tensor<2x4x6x8xf32>) -> tensor<2x4x6x8xf32>
  %4 = "relax.permute"(%3) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x4x6x8xf32>) -> tensor<2x8x4x6xf32>
  %5 = "relax.negative"(%4) : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  return %2, %5 : tensor<2x8x4x6xf32>, tensor<2x8x4x6xf32>
}
