// RUN: mirlo-opt %s --remove-dead | FileCheck %s

// Pure relax operators that nothing uses, and what only they used.
// CHECK-LABEL: func.func @dead
// CHECK-NEXT:    %[[R:.*]] = "relax.relu"
// CHECK-NEXT:    return %[[R]]
func.func @dead(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.constant"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.negative"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A call may do something that is seen elsewhere.
// CHECK-LABEL: func.func @call
// CHECK:         "relax.call_packed"
func.func @call(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.call_packed"(%x) {function = "log",
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %x : tensor<4xf32>
}

// Within branches, too.
// CHECK-LABEL: func.func @branch
// CHECK-NOT:     "relax.exp"
func.func @branch(%c: i1, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = scf.if %c -> tensor<4xf32> {
    %1 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %x : tensor<4xf32>
  } else {
    %2 = "relax.negative"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
