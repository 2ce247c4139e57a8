// RUN: mirlo-opt %s --pass-pipeline='builtin.module(legalize,pack-weights{machine=avx512})' | FileCheck %s

// Operands that are not constants stay as they are; so do constants that a kernel reads as fast where they are.
// CHECK-LABEL: func.func @inputs
// CHECK: "relax.call_tir"(%arg0, %arg1) {{.*}} (tensor<64x200xf32>, tensor<200x100xf32>) -> tensor<64x100xf32>
// CHECK: "relax.call_tir"(%{{.*}}, %{{.*}}) {{.*}} (tensor<64x100xf32>, tensor<100x2xf32>) -> tensor<64x2xf32>
func.func @inputs(%x: tensor<64x200xf32>, %w: tensor<200x100xf32>) -> tensor<64x2xf32> {
  %v = "relax.constant"() {param = "few_columns"} : () -> tensor<100x2xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<64x200xf32>, tensor<200x100xf32>) -> tensor<64x100xf32>
  %1 = "relax.matmul"(%0, %v) : (tensor<64x100xf32>, tensor<100x2xf32>) -> tensor<64x2xf32>
  return %1 : tensor<64x2xf32>
}
