// RUN: mirlo-opt %s --simplify --split-input-file | FileCheck %s

// A loop over rows that was unrolled, each with a product, a bias and an activation, is computed for all rows at once.
// What is joined in steps is joined at once as well.
// CHECK-LABEL: func.func @unrolled(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4x?x8xf32
// CHECK-DAG:     %[[ROWS:.*]] = "relax.reshape"(%[[X]]) {shape = ["4*n", 8]}
// CHECK-DAG:     %[[PRODUCT:.*]] = "relax.matmul"(%[[ROWS]], %{{.*}}) : (tensor<?x8xf32, #relax.dims<["4*n", 8]>>, tensor<8x2xf32>)
// CHECK-DAG:     %[[SUM:.*]] = "relax.add"(%[[PRODUCT]], %{{.*}})
// CHECK-DAG:     %[[TANH:.*]] = "relax.tanh"(%[[SUM]])
// CHECK-DAG:     %[[BACK:.*]] = "relax.reshape"(%[[TANH]]) {shape = [4, "n", 2]}
// CHECK-NOT:     strided_slice
// CHECK:         return %[[BACK]]
func.func @unrolled(%x: tensor<4x?x8xf32, #relax.dims<[4, "n", 8]>>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> tensor<4x?x2xf32, #relax.dims<[4, "n", 2]>> {
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 1>, strides = array<i64: 1>} : (tensor<4x?x8xf32, #relax.dims<[4, "n", 8]>>) -> tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>
  %1 = "relax.reshape"(%0) {shape = ["n", 8]} : (tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>) -> tensor<?x8xf32, #relax.dims<["n", 8]>>
  %2 = "relax.matmul"(%1, %w) : (tensor<?x8xf32, #relax.dims<["n", 8]>>, tensor<8x2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %3 = "relax.add"(%2, %b) : (tensor<?x2xf32, #relax.dims<["n", 2]>>, tensor<2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %4 = "relax.tanh"(%3) : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %5 = "relax.reshape"(%4) {shape = [1, "n", 2]} : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>
  %10 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<4x?x8xf32, #relax.dims<[4, "n", 8]>>) -> tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>
  %11 = "relax.reshape"(%10) {shape = ["n", 8]} : (tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>) -> tensor<?x8xf32, #relax.dims<["n", 8]>>
  %12 = "relax.matmul"(%11, %w) : (tensor<?x8xf32, #relax.dims<["n", 8]>>, tensor<8x2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %13 = "relax.add"(%12, %b) : (tensor<?x2xf32, #relax.dims<["n", 2]>>, tensor<2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %14 = "relax.tanh"(%13) : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %15 = "relax.reshape"(%14) {shape = [1, "n", 2]} : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>
  %20 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 2>, end = array<i64: 3>, strides = array<i64: 1>} : (tensor<4x?x8xf32, #relax.dims<[4, "n", 8]>>) -> tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>
  %21 = "relax.reshape"(%20) {shape = ["n", 8]} : (tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>) -> tensor<?x8xf32, #relax.dims<["n", 8]>>
  %22 = "relax.matmul"(%21, %w) : (tensor<?x8xf32, #relax.dims<["n", 8]>>, tensor<8x2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %23 = "relax.add"(%22, %b) : (tensor<?x2xf32, #relax.dims<["n", 2]>>, tensor<2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %24 = "relax.tanh"(%23) : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %25 = "relax.reshape"(%24) {shape = [1, "n", 2]} : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>
  %30 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: -1>, end = array<i64: 9>, strides = array<i64: 1>} : (tensor<4x?x8xf32, #relax.dims<[4, "n", 8]>>) -> tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>
  %31 = "relax.reshape"(%30) {shape = ["n", 8]} : (tensor<1x?x8xf32, #relax.dims<[1, "n", 8]>>) -> tensor<?x8xf32, #relax.dims<["n", 8]>>
  %32 = "relax.matmul"(%31, %w) : (tensor<?x8xf32, #relax.dims<["n", 8]>>, tensor<8x2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %33 = "relax.add"(%32, %b) : (tensor<?x2xf32, #relax.dims<["n", 2]>>, tensor<2xf32>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %34 = "relax.tanh"(%33) : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  %35 = "relax.reshape"(%34) {shape = [1, "n", 2]} : (tensor<?x2xf32, #relax.dims<["n", 2]>>) -> tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>
  %40 = "relax.concat"(%5, %15, %25) {axis = 0 : i64, operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>, tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>, tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>) -> tensor<3x?x2xf32, #relax.dims<[3, "n", 2]>>
  %41 = "relax.concat"(%40, %35) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<3x?x2xf32, #relax.dims<[3, "n", 2]>>, tensor<1x?x2xf32, #relax.dims<[1, "n", 2]>>) -> tensor<4x?x2xf32, #relax.dims<[4, "n", 2]>>
  return %41 : tensor<4x?x2xf32, #relax.dims<[4, "n", 2]>>
}

// -----

// Rows of an inner dim are moved to the front and back; those that are not sliced are left out.
// CHECK-LABEL: func.func @inner(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<2x6x8xf32>
// CHECK:         %[[PAIRS:.*]] = "relax.reshape"(%[[X]]) {shape = [2, 3, 2, 8]}
// CHECK:         %[[PART:.*]] = "relax.strided_slice"(%[[PAIRS]]) {axes = array<i64: 1>, begin = array<i64: 1>, end = array<i64: 3>, strides = array<i64: 1>}
// CHECK:         "relax.permute"(%[[PART]])
// CHECK:         "relax.exp"(%{{.*}}) : (tensor<2x2x2x8xf32>)
// CHECK-NOT:     "relax.exp"
// CHECK-NOT:     "relax.concat"
func.func @inner(%x: tensor<2x6x8xf32>) -> tensor<2x4x8xf32> {
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 1>, begin = array<i64: 2>, end = array<i64: 4>, strides = array<i64: 1>} : (tensor<2x6x8xf32>) -> tensor<2x2x8xf32>
  %1 = "relax.exp"(%0) : (tensor<2x2x8xf32>) -> tensor<2x2x8xf32>
  %2 = "relax.strided_slice"(%x) {axes = array<i64: 1>, begin = array<i64: 4>, end = array<i64: 6>, strides = array<i64: 1>} : (tensor<2x6x8xf32>) -> tensor<2x2x8xf32>
  %3 = "relax.exp"(%2) : (tensor<2x2x8xf32>) -> tensor<2x2x8xf32>
  %4 = "relax.concat"(%1, %3) {axis = 1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x2x8xf32>, tensor<2x2x8xf32>) -> tensor<2x4x8xf32>
  return %4 : tensor<2x4x8xf32>
}

// -----

// Slices in another order, other operators, other operands, and values with other users stay.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-4: "relax.concat"
func.func @others(%x: tensor<2x8xf32>, %y: tensor<8xf32>, %z: tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<1x8xf32>) {
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 1>, strides = array<i64: 1>} : (tensor<2x8xf32>) -> tensor<1x8xf32>
  %1 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<2x8xf32>) -> tensor<1x8xf32>
  %2 = "relax.exp"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %3 = "relax.exp"(%1) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %4 = "relax.concat"(%3, %2) {axis = 0 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
  %5 = "relax.tanh"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %6 = "relax.sin"(%1) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %7 = "relax.concat"(%5, %6) {axis = 0 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
  %8 = "relax.add"(%0, %y) : (tensor<1x8xf32>, tensor<8xf32>) -> tensor<1x8xf32>
  %9 = "relax.add"(%1, %z) : (tensor<1x8xf32>, tensor<8xf32>) -> tensor<1x8xf32>
  %10 = "relax.concat"(%8, %9) {axis = 0 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
  %11 = "relax.cos"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %12 = "relax.cos"(%1) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %13 = "relax.concat"(%11, %12) {axis = 0 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
  return %4, %7, %10, %13, %12 : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<1x8xf32>
}
