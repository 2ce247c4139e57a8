// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops --fuse-tir --elide-copies --split-input-file | FileCheck %s

// Rows of the result of a call are a part of its memory, also through reshapes: no kernel copies them. What is not
// contiguous is copied.
// CHECK-LABEL: func.func @rows(
// CHECK:         %[[X:.*]] = "relax.call_tir"(%arg0, %arg1) {callee = @matmul
// CHECK:         %[[A:.*]] = "relax.view_part"(%[[X]]) {offset = [8], shape = [1, 8]} : (tensor<4x8xf32>) -> tensor<1x8xf32>
// CHECK:         %[[R:.*]] = "relax.reshape"(%[[A]]) {shape = [2, 4]}
// CHECK:         %[[B:.*]] = "relax.view_part"(%[[R]]) {offset = [4], shape = [1, 4]} : (tensor<2x4xf32>) -> tensor<1x4xf32>
// CHECK:         %[[C:.*]] = "relax.call_tir"(%[[X]]) {callee = @strided_slice
// CHECK:         "relax.call_tir"(%[[B]], %{{.*}}) {callee = @matmul
// CHECK:       func.func private @strided_slice{{.*}}tensor<4x1xf32>
// CHECK-NOT:     func.func private @strided_slice
func.func @rows(%x: tensor<4x4xf32>, %w: tensor<4x8xf32>) -> (tensor<1x1xf32>, tensor<1x8xf32>) {
  %0 = "relax.matmul"(%x, %w) : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.strided_slice"(%0) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = "relax.reshape"(%1) {shape = [2, 4]} : (tensor<1x8xf32>) -> tensor<2x4xf32>
  %3 = "relax.strided_slice"(%2) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %4 = "relax.strided_slice"(%0) {axes = array<i64: 1>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %5 = "relax.matmul"(%3, %4) : (tensor<1x4xf32>, tensor<4x1xf32>) -> tensor<1x1xf32>
  %6 = "relax.matmul"(%3, %w) : (tensor<1x4xf32>, tensor<4x8xf32>) -> tensor<1x8xf32>
  return %5, %6 : tensor<1x1xf32>, tensor<1x8xf32>
}

// -----

// Positions may be products of run-time sizes, where the part lies in the tensor whatever they are. A part that may
// begin behind the last element is copied.
// CHECK-LABEL: func.func @sizes(
// CHECK:         "relax.view_part"(%{{.*}}) {offset = ["16*n"], shape = [1, "n", 8]}
// CHECK-NOT:     relax.view_part
func.func @sizes(%x: tensor<3x?x4xf32, #relax.dims<[3, "n", 4]>>, %w: tensor<4x8xf32>, %v: tensor<8x2xf32>) -> (tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>, tensor<?x2xf32, #relax.dims<["max(0, n - 2)", 2]>>) {
  %0 = "relax.matmul"(%x, %w) : (tensor<3x?x4xf32, #relax.dims<[3, "n", 4]>>, tensor<4x8xf32>) -> tensor<3x?x8xf32, #relax.dims<[3, "n", 8]>>
  %1 = "relax.strided_slice"(%0) {axes = array<i64: 0>, begin = array<i64: 2>, end = array<i64: 3>, strides = array<i64: 1>} : (tensor<3x?x8xf32, #relax.dims<[3, "n", 8]>>) -> tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>
  %2 = "relax.matmul"(%1, %v) : (tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>, tensor<8x2xf32>) -> tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>
  %3 = "relax.reshape"(%1) {shape = ["n", 8]} : (tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>) -> tensor<?x8xf32, #relax.dims<["n", 8]>>
  %4 = "relax.strided_slice"(%3) {axes = array<i64: 0>, begin = array<i64: 2>, end = array<i64: 2147483647>, strides = array<i64: 1>} : (tensor<?x8xf32, #relax.dims<["n", 8]>>) -> tensor<?x8xf32, #relax.dims<["max(0, n - 2)", 8]>>
  %5 = "relax.matmul"(%4, %v) : (tensor<?x8xf32, #relax.dims<["max(0, n - 2)", 8]>>, tensor<8x2xf32>) -> tensor<?x2xf32, #relax.dims<["max(0, n - 2)", 2]>>
  return %2, %5 : tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>, tensor<?x2xf32, #relax.dims<["max(0, n - 2)", 2]>>
}

// -----

// Inputs and outputs are memory of the caller, which parts are copied from and to; so is what control flow takes.
// CHECK-LABEL: func.func @callers(
// CHECK-NOT:     relax.view_part
func.func @callers(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>, %c: tensor<i1>) -> (tensor<1x4xf32>, tensor<1x4xf32>, tensor<2x4xf32>, tensor<1x4xf32>) {
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %1 = "relax.matmul"(%0, %w) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  %2 = "relax.matmul"(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = "relax.strided_slice"(%2) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 1>, strides = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %4 = "relax.matmul"(%2, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %5 = "relax.strided_slice"(%4) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %6 = "relax.matmul"(%5, %w) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  %7 = "relax.matmul"(%4, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %8 = "relax.strided_slice"(%7) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %flag = tensor.extract %c[] : tensor<i1>
  %9 = scf.if %flag -> (tensor<1x4xf32>) {
    scf.yield %8 : tensor<1x4xf32>
  } else {
    scf.yield %6 : tensor<1x4xf32>
  }
  return %1, %3, %4, %9 : tensor<1x4xf32>, tensor<1x4xf32>, tensor<2x4xf32>, tensor<1x4xf32>
}

// -----

// A reshape of a result that is returned is memory of the caller, too.
// CHECK-LABEL: func.func @reshaped(
// CHECK-NOT:     relax.view_part
func.func @reshaped(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> (tensor<8xf32>, tensor<1x4xf32>) {
  %0 = "relax.matmul"(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = "relax.reshape"(%0) {shape = [8]} : (tensor<2x4xf32>) -> tensor<8xf32>
  %2 = "relax.strided_slice"(%0) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %3 = "relax.matmul"(%2, %w) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  return %1, %3 : tensor<8xf32>, tensor<1x4xf32>
}
