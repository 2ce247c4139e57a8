// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule --plan-memory --split-input-file --verify-diagnostics | FileCheck %s

// A part lies in the memory of its operand, which is alive as long as it is read: %1 has other memory, as %2 and %5 are
// read after it, at byte 32 and at byte 48. Nothing is computed over a part, as the tensor around it may be read again.
// CHECK-LABEL: func.func @parts(
// CHECK-SAME:    %[[X:.*]]: memref<4x4xf32>{{.*}}, %[[Y:.*]]: memref<4xf32>{{.*}}, %[[A:.*]]: memref<256xi8> {relax.arena})
// CHECK-DAG:     %[[V0:.*]] = memref.view %[[A]][%c0{{.*}}memref<4x4xf32>
// CHECK-DAG:     call @exp(%[[X]], %[[V0]])
// CHECK-DAG:     %[[V1:.*]] = memref.view %[[A]][%c64{{.*}}memref<4x4xf32>
// CHECK:         call @permute(%[[V0]], %[[V1]])
// CHECK:         %[[V2:.*]] = memref.view %[[A]][%c32{{.*}}memref<2x4xf32>
// CHECK:         %[[V3:.*]] = memref.view %[[A]][%c128{{.*}}memref<2x4xf32>
// CHECK:         call @negative(%[[V2]], %[[V3]])
// CHECK:         %[[V5:.*]] = memref.view %[[A]][%c48{{.*}}memref<4xf32>
// CHECK:         call @matmul_0(%{{.*}}, %[[V5]],
func.func @parts(%x: tensor<4x4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "relax.view_part"(%0) {offset = [8], shape = [2, 4]} : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = "relax.negative"(%2) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %4 = "relax.matmul"(%3, %1) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %5 = "relax.view_part"(%2) {offset = [4], shape = [4]} : (tensor<2x4xf32>) -> tensor<4xf32>
  %6 = "relax.matmul"(%4, %5) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2xf32>
  %7 = "relax.reshape"(%6) {shape = [2, 1]} : (tensor<2xf32>) -> tensor<2x1xf32>
  %8 = "relax.multiply"(%7, %4) : (tensor<2x1xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %9 = "relax.reduce_sum"(%8) {axes = array<i64: 0>, keepdims = false} : (tensor<2x4xf32>) -> tensor<4xf32>
  return %9 : tensor<4xf32>
}

// -----

// What is returned or carried is copied from a part to its memory, and not computed there.
// CHECK-LABEL: func.func @returned(
// CHECK-SAME:    %[[X:.*]]: memref<4xf32>{{.*}}, %[[Y:.*]]: memref<2xf32>
// CHECK:         %[[V:.*]] = memref.view %{{.*}}[%c0
// CHECK:         call @exp(%[[X]], %[[V]])
// CHECK:         %[[P:.*]] = memref.view %{{.*}}[%c8
// CHECK:         memref.copy %[[P]], %[[Y]] : memref<2xf32> to memref<2xf32>
func.func @returned(%x: tensor<4xf32>) -> tensor<2xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.view_part"(%0) {offset = [2], shape = [2]} : (tensor<4xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// -----

func.func @input(%x: tensor<4xf32>) -> tensor<2xf32> {
  // expected-error @below {{'relax.view_part' views memory that the plan does not choose: its operand must be the result of a call}}
  %0 = "relax.view_part"(%x) {offset = [2], shape = [2]} : (tensor<4xf32>) -> tensor<2xf32>
  %1 = "relax.exp"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
