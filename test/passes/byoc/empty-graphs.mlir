// Graphs in which nothing is to be placed, or next to nothing: the passes leave what computes nothing where it is.
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(partition{targets=one,two},verify-calls)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(partition{targets=greedy,one,two,llvm},inline-external,verify-calls)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(fuse-by-pattern{target=one},fuse-by-pattern{target=two},merge-composites,hoist-layouts,outline-external,verify-calls)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(fuse-by-pattern{target=one bind-constants=false annotate},inline-external,verify-calls)' | FileCheck %s

// No operator.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %arg0 : tensor<2x4xf32>
}

// -----

// No result.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) {
  return
}

// -----

// Nothing.
// CHECK: func.func @main
func.func @main() {
  return
}

// -----

// Only a constant.
// CHECK: func.func @main
func.func @main() -> tensor<4x4xf32> {
  %0 = "relax.constant"() {value = dense<5.000000e-01> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// Unused constant.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "relax.constant"() {value = dense<5.000000e-01> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  return %arg0 : tensor<2x4xf32>
}

// -----

// Only views.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> (tensor<8xf32>, tensor<4x2xf32>) {
  %0 = "relax.reshape"(%arg0) {shape = [8]} : (tensor<2x4xf32>) -> tensor<8xf32>
  %1 = "relax.reshape"(%0) {shape = [4, 2]} : (tensor<8xf32>) -> tensor<4x2xf32>
  return %0, %1 : tensor<8xf32>, tensor<4x2xf32>
}

// -----

// One operator.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "relax.relu"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// One result twice.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %0 = "relax.relu"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0, %0 : tensor<2x4xf32>, tensor<2x4xf32>
}

// -----

// Unused operators.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "relax.constant"() {value = dense<5.000000e-01> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %1 = "relax.matmul"(%arg0, %0) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = "relax.softmax"(%1) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %arg0 : tensor<2x4xf32>
}

// -----

// Size 0.
// CHECK: func.func @main
func.func @main(%arg0: tensor<0x4xf32>) -> tensor<0x4xf32> {
  %0 = "relax.constant"() {value = dense<5.000000e-01> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %1 = "relax.matmul"(%arg0, %0) : (tensor<0x4xf32>, tensor<4x4xf32>) -> tensor<0x4xf32>
  %2 = "relax.relu"(%1) : (tensor<0x4xf32>) -> tensor<0x4xf32>
  return %2 : tensor<0x4xf32>
}

// -----

// Sum of size 0.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x0xf32>) -> tensor<2xf32> {
  %0 = "relax.reduce_sum"(%arg0) {axes = array<i64: 1>, keepdims = false} : (tensor<2x0xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// Size 1.
// CHECK: func.func @main
func.func @main(%arg0: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %0 = "relax.softmax"(%arg0) {axis = 1 : i64} : (tensor<1x1xf32>) -> tensor<1x1xf32>
  return %0 : tensor<1x1xf32>
}

// -----

// No dims.
// CHECK: func.func @main
func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = "relax.exp"(%arg0) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// One user.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "relax.constant"() {value = dense<5.000000e-01> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %1 = "relax.matmul"(%arg0, %0) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = "relax.relu"(%1) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}

// -----

// Two users.
// CHECK: func.func @main
func.func @main(%arg0: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %0 = "relax.constant"() {value = dense<5.000000e-01> : tensor<4x4xf32>} : () -> tensor<4x4xf32>
  %1 = "relax.matmul"(%arg0, %0) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = "relax.relu"(%1) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %1, %2 : tensor<2x4xf32>, tensor<2x4xf32>
}

// -----

// A function that nothing calls.
// CHECK: func.func @main
func.func private @helper(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %arg0 : tensor<2x4xf32>
}
