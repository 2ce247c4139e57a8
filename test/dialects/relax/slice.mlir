// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Slices, padding, concatenation, splitting.

// CHECK-LABEL: func.func @slice_clamps(
func.func @slice_clamps(%x: tensor<10x20xf32>) -> tensor<9x2xf32> {
  // CHECK: "relax.strided_slice"(%{{.*}}) {axes = array<i64: 0, 1>, begin = array<i64: 1, -3>, end = array<i64: 100, 9223372036854775807>, strides = array<i64: 1, 2>} :
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0, 1>, begin = array<i64: 1, -3>, end = array<i64: 100, 9223372036854775807>, strides = array<i64: 1, 2>} : (tensor<10x20xf32>) -> tensor<9x2xf32>
  return %0 : tensor<9x2xf32>
}

// CHECK-LABEL: func.func @slice_backwards(
func.func @slice_backwards(%x: tensor<10xf32>) -> tensor<4xf32> {
  // CHECK: "relax.strided_slice"(%{{.*}}) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: -9223372036854775808>, strides = array<i64: -3>} :
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: -9223372036854775808>, strides = array<i64: -3>} : (tensor<10xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @slice_symbolic_rest(
func.func @slice_symbolic_rest(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["max(0, n - 1)"]>> {
  // CHECK: "relax.strided_slice"(%{{.*}}) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 9223372036854775807>, strides = array<i64: 1>} :
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 9223372036854775807>, strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["max(0, n - 1)"]>>
  return %0 : tensor<?xf32, #relax.dims<["max(0, n - 1)"]>>
}

// CHECK-LABEL: func.func @slice_symbolic_head(
func.func @slice_symbolic_head(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["max(0, n - 1)"]>> {
  // CHECK: "relax.strided_slice"(%{{.*}}) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: -1>, strides = array<i64: 1>} :
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: -1>, strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["max(0, n - 1)"]>>
  return %0 : tensor<?xf32, #relax.dims<["max(0, n - 1)"]>>
}

// CHECK-LABEL: func.func @slice_symbolic_last(
func.func @slice_symbolic_last(%x: tensor<?xf32, #relax.dims<["n + 1"]>>) -> tensor<1xf32> {
  // CHECK: "relax.strided_slice"(%{{.*}}) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: 2147483647>, strides = array<i64: 1>} :
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: 2147483647>, strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n + 1"]>>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
}

// CHECK-LABEL: func.func @slice_symbolic_all_backwards(
func.func @slice_symbolic_all_backwards(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>> {
  // CHECK: "relax.strided_slice"(%{{.*}}) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: -2147483648>, strides = array<i64: -1>} :
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: -2147483648>, strides = array<i64: -1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}

// CHECK-LABEL: func.func @pad_constant(
func.func @pad_constant(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x6xf32, #relax.dims<["b", 6]>> {
  // CHECK: "relax.pad"(%{{.*}}) {pads = array<i64: 0, 1, 0, 2>, value = -1.000000e+00 : f64} :
  %0 = "relax.pad"(%x) {pads = array<i64: 0, 1, 0, 2>, value = -1.000000e+00 : f64} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x6xf32, #relax.dims<["b", 6]>>
  return %0 : tensor<?x6xf32, #relax.dims<["b", 6]>>
}

// CHECK-LABEL: func.func @pad_crops(
func.func @pad_crops(%x: tensor<?x8xf32, #relax.dims<["n", 8]>>) -> tensor<?x10xf32, #relax.dims<["n - 2", 10]>> {
  // CHECK: "relax.pad"(%{{.*}}) {pads = array<i64: 0, -1, -2, 3>} :
  %0 = "relax.pad"(%x) {pads = array<i64: 0, -1, -2, 3>} : (tensor<?x8xf32, #relax.dims<["n", 8]>>) -> tensor<?x10xf32, #relax.dims<["n - 2", 10]>>
  return %0 : tensor<?x10xf32, #relax.dims<["n - 2", 10]>>
}

// CHECK-LABEL: func.func @pad_modes(
func.func @pad_modes(%x: tensor<3xf32>) -> tensor<7xf32> {
  // CHECK: "relax.pad"(%{{.*}}) {pads = array<i64: 2, 2>} :
  %0 = "relax.pad"(%x) {pads = array<i64: 2, 2>} : (tensor<3xf32>) -> tensor<7xf32>
  // CHECK: "relax.pad"(%{{.*}}) {mode = "reflect", pads = array<i64: 2, 2>} :
  %1 = "relax.pad"(%x) {mode = "reflect", pads = array<i64: 2, 2>} : (tensor<3xf32>) -> tensor<7xf32>
  // CHECK: "relax.pad"(%{{.*}}) {mode = "edge", pads = array<i64: 2, 2>} :
  %2 = "relax.pad"(%x) {mode = "edge", pads = array<i64: 2, 2>} : (tensor<3xf32>) -> tensor<7xf32>
  // CHECK: "relax.pad"(%{{.*}}) {mode = "wrap", pads = array<i64: 2, 2>} :
  %3 = "relax.pad"(%x) {mode = "wrap", pads = array<i64: 2, 2>} : (tensor<3xf32>) -> tensor<7xf32>
  return %3 : tensor<7xf32>
}

// CHECK-LABEL: func.func @concat_symbolic(
func.func @concat_symbolic(%x0: tensor<?x?x4xf32, #relax.dims<["b", "n", 4]>>, %x1: tensor<?x3x4xf32, #relax.dims<["b", 3, 4]>>, %x2: tensor<?x?x4xf32, #relax.dims<["b", "n", 4]>>) -> tensor<?x?x4xf32, #relax.dims<["b", "2*n + 3", 4]>> {
  // CHECK: "relax.concat"(%{{.*}}, %{{.*}}, %{{.*}}) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.concat"(%x0, %x1, %x2) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x?x4xf32, #relax.dims<["b", "n", 4]>>, tensor<?x3x4xf32, #relax.dims<["b", 3, 4]>>, tensor<?x?x4xf32, #relax.dims<["b", "n", 4]>>) -> tensor<?x?x4xf32, #relax.dims<["b", "2*n + 3", 4]>>
  return %0 : tensor<?x?x4xf32, #relax.dims<["b", "2*n + 3", 4]>>
}

// CHECK-LABEL: func.func @concat_one(
func.func @concat_one(%x0: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK: "relax.concat"(%{{.*}}) {axis = -1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.concat"(%x0) {axis = -1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// CHECK-LABEL: func.func @stack_middle(
func.func @stack_middle(%x0: tensor<?x4xf32, #relax.dims<["b", 4]>>, %x1: tensor<?x4xf32, #relax.dims<["b", 4]>>) -> tensor<?x2x4xf32, #relax.dims<["b", 2, 4]>> {
  // CHECK: "relax.stack"(%{{.*}}, %{{.*}}) {axis = 1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.stack"(%x0, %x1) {axis = 1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x4xf32, #relax.dims<["b", 4]>>, tensor<?x4xf32, #relax.dims<["b", 4]>>) -> tensor<?x2x4xf32, #relax.dims<["b", 2, 4]>>
  return %0 : tensor<?x2x4xf32, #relax.dims<["b", 2, 4]>>
}

// CHECK-LABEL: func.func @stack_scalars(
func.func @stack_scalars(%x0: tensor<i64>, %x1: tensor<i64>, %x2: tensor<i64>) -> tensor<3xi64> {
  // CHECK: "relax.stack"(%{{.*}}, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
  %0 = "relax.stack"(%x0, %x1, %x2) {operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<3xi64>
  return %0 : tensor<3xi64>
}

// CHECK-LABEL: func.func @split_even(
func.func @split_even(%x: tensor<?x6xf32, #relax.dims<["b", 6]>>) -> (tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>) {
  // CHECK: "relax.split"(%{{.*}}) {axis = 1 : i64, resultSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = [2, 2, 2]} :
  %0:3 = "relax.split"(%x) {axis = 1 : i64, resultSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = [2, 2, 2]} : (tensor<?x6xf32, #relax.dims<["b", 6]>>) -> (tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>)
  return %0#0, %0#1, %0#2 : tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>
}

// CHECK-LABEL: func.func @split_uneven(
func.func @split_uneven(%x: tensor<?x6xf32, #relax.dims<["b", 6]>>) -> (tensor<?x1xf32, #relax.dims<["b", 1]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x1xf32, #relax.dims<["b", 1]>>) {
  // CHECK: "relax.split"(%{{.*}}) {axis = -1 : i64, resultSegmentSizes = array<i32: 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = [1, 2, 2, 1]} :
  %0:4 = "relax.split"(%x) {axis = -1 : i64, resultSegmentSizes = array<i32: 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = [1, 2, 2, 1]} : (tensor<?x6xf32, #relax.dims<["b", 6]>>) -> (tensor<?x1xf32, #relax.dims<["b", 1]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x1xf32, #relax.dims<["b", 1]>>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<?x1xf32, #relax.dims<["b", 1]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x2xf32, #relax.dims<["b", 2]>>, tensor<?x1xf32, #relax.dims<["b", 1]>>
}

// CHECK-LABEL: func.func @split_symbolic(
func.func @split_symbolic(%x: tensor<?xf32, #relax.dims<["2*n + 3"]>>) -> (tensor<?xf32, #relax.dims<["n"]>>, tensor<?xf32, #relax.dims<["n"]>>, tensor<3xf32>) {
  // CHECK: "relax.split"(%{{.*}}) {axis = 0 : i64, resultSegmentSizes = array<i32: 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = ["n", "n", 3]} :
  %0:3 = "relax.split"(%x) {axis = 0 : i64, resultSegmentSizes = array<i32: 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, sizes = ["n", "n", 3]} : (tensor<?xf32, #relax.dims<["2*n + 3"]>>) -> (tensor<?xf32, #relax.dims<["n"]>>, tensor<?xf32, #relax.dims<["n"]>>, tensor<3xf32>)
  return %0#0, %0#1, %0#2 : tensor<?xf32, #relax.dims<["n"]>>, tensor<?xf32, #relax.dims<["n"]>>, tensor<3xf32>
}
