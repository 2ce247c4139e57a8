// RUN: mirlo-opt %s --tile-batch="machine='cpu=x86-64-v3 l2=524288 l3=1048576' explain" -o %t 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: FileCheck %s < %t
// RUN: mirlo-opt %s --tile-batch="machine='cpu=x86-64-v3 l2=524288 l3=100000000' explain" 2>&1 | FileCheck %s --check-prefix=LARGE

// The tensors of 16 images leave the caches, those of one do not. The weights of the product are read once.
// WHY:   the batch is computed row by row by 3 operators, of 4 before 'func.return'
// LARGE: the batch is computed as a whole

// CHECK-LABEL: func.func @main(
// CHECK:         scf.while
// CHECK:           "relax.conv"({{.*}} -> tensor<1x32x32x16xf32>
// CHECK:           "relax.conv"({{.*}} -> tensor<1x32x32x16xf32>
// CHECK:           "relax.reshape"({{.*}} -> tensor<1x16384xf32>
// CHECK:         "relax.matmul"({{.*}} -> tensor<16x64xf32>
func.func @main(%x: tensor<16x32x32x16xf32>) -> tensor<16x64xf32> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<3x3x16x16xf32>} : () -> tensor<3x3x16x16xf32>
  %p = "relax.constant"() {value = dense<0.5> : tensor<16384x64xf32>} : () -> tensor<16384x64xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<16x32x32x16xf32>, tensor<3x3x16x16xf32>) -> tensor<16x32x32x16xf32>
  %1 = "relax.conv"(%0, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<16x32x32x16xf32>, tensor<3x3x16x16xf32>) -> tensor<16x32x32x16xf32>
  %2 = "relax.reshape"(%1) {shape = [16, 16384]} : (tensor<16x32x32x16xf32>) -> tensor<16x16384xf32>
  %3 = "relax.matmul"(%2, %p) : (tensor<16x16384xf32>, tensor<16384x64xf32>) -> tensor<16x64xf32>
  return %3 : tensor<16x64xf32>
}
