// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --verify-diagnostics --partition='targets=splits explain' --outline-external --verify-calls | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --partition=targets=splits --outline-external --run-on-external='target=splits pipeline=cse,remove-dead' --mlir-print-ir-after=remove-dead -o /dev/null 2>&1 | FileCheck %s --check-prefix=PRINT

// A call holds results of four types: an operator of more stays where it is, and says so.

// CHECK-LABEL: func.func @many(
// CHECK-NEXT:    "relax.split"
func.func @many(%x: tensor<15xf32>) -> (tensor<1xf32>, tensor<2xf32>, tensor<3xf32>, tensor<4xf32>, tensor<5xf32>) {
  // expected-remark @below {{splits.split matched 1 deep: the match has inputs of 1 types and results of 5; a call holds 16 and 4}}
  %0:5 = "relax.split"(%x) {axis = 0 : i64, sizes = [1, 2, 3, 4, 5], resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<15xf32>) -> (tensor<1xf32>, tensor<2xf32>, tensor<3xf32>, tensor<4xf32>, tensor<5xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<1xf32>, tensor<2xf32>, tensor<3xf32>, tensor<4xf32>, tensor<5xf32>
}

// Results that alternate between two types are sorted by type.

// CHECK-LABEL: func.func @alternating(
// CHECK-NEXT:    %[[R:.*]]:6 = "relax.call_external"(%arg0) {{.*}} -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
// CHECK-NEXT:    return %[[R]]#0, %[[R]]#3, %[[R]]#1, %[[R]]#4, %[[R]]#2, %[[R]]#5

// What passes do inside an external module is printed like what others do.

// PRINT: IR Dump After remove-dead ('func.func' operation: @splits_split_0)
func.func @alternating(%x: tensor<9xf32>) -> (tensor<1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>) {
  %0:6 = "relax.split"(%x) {axis = 0 : i64, sizes = [1, 2, 1, 2, 1, 2], resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<9xf32>) -> (tensor<1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5 : tensor<1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>
}

// In a function of several blocks, what another block reads is used outside.

// CHECK-LABEL: func.func @blocks(
// CHECK-NEXT:    %[[R:.*]]:2 = "relax.call_external"(%arg0)
// CHECK-NEXT:    cf.br ^bb1
// CHECK:         return %[[R]]#0, %[[R]]#1
func.func @blocks(%x: tensor<3xf32>) -> (tensor<1xf32>, tensor<2xf32>) {
  %0:2 = "relax.split"(%x) {axis = 0 : i64, sizes = [1, 2], resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<3xf32>) -> (tensor<1xf32>, tensor<2xf32>)
  cf.br ^next
^next:
  return %0#0, %0#1 : tensor<1xf32>, tensor<2xf32>
}
