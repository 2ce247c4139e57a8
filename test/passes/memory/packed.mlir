// Calls of run-time functions: a declared function per call and types, the pointers and the record as arguments.
// RUN: mirlo-opt %s --plan-memory --split-input-file --verify-diagnostics | FileCheck %s

// CHECK: func.func @main(%[[X:.*]]: memref<4xf32> {relax.name = "input_0", relax.type = tensor<4xf32>}, %[[Y:.*]]: memref<4xi8>
// CHECK-SAME: %[[F:.*]]: memref<2xi64> {relax.functions}, %[[R:.*]]: memref<2xi64> {relax.record}, %[[A:.*]]: memref<128xi8> {relax.arena})
// CHECK-SAME: relax.packed = ["my.f", "my.g"]
// CHECK: %[[T:.*]] = memref.view %[[A]]
// CHECK: call @packed_my_f(%[[F]], %[[R]], %[[X]], %[[T]]) : (memref<2xi64>, memref<2xi64>, memref<4xf32>, memref<4xf32>) -> i1
// CHECK: call @packed_my_f(%[[F]], %[[R]], %[[T]], %{{.*}})
// CHECK: call @packed_my_g(%[[F]], %[[R]], %{{.*}}, %[[Y]]) : (memref<2xi64>, memref<2xi64>, memref<4xf32>, memref<4xi8>) -> i1
// CHECK: func.func private @packed_my_f(memref<2xi64>, memref<2xi64>, memref<4xf32>, memref<4xf32>) -> i1
// CHECK-SAME: relax.packed = ["my.f"], relax.types = [tensor<4xf32>, tensor<4xf32>]
// CHECK: func.func private @packed_my_g
// CHECK-SAME: relax.types = [tensor<4xf32>, tensor<4xi1>]
// CHECK-NOT: func.func
func.func @main(%x: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.call_dps_packed"(%x) {function = "my.f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.call_dps_packed"(%0) {function = "my.f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.call_dps_packed"(%1) {function = "my.g", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xi1>
  return %2 : tensor<4xi1>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'relax.call_packed' of 'my.f' allocates what it returns, which compiled models cannot take: use relax.call_dps_packed, whose outputs the caller allocates}}
  %0 = "relax.call_packed"(%x) {function = "my.f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
