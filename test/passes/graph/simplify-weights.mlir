// RUN: mirlo-opt %s --simplify | FileCheck %s

// A batch norm after a convolution goes into its weights and bias: scale 3 / sqrt(4 + 0), shift 1 - 2 * 1.5.
// CHECK-LABEL: func.func @batch_norm(
// CHECK-DAG:     %[[W:.*]] = "relax.constant"() {value = dense<1.500000e+00> : tensor<1x2x1x1xf32>}
// CHECK-DAG:     %[[B:.*]] = "relax.constant"() {value = dense<-2.000000e+00> : tensor<1xf32>}
// CHECK:         %[[C:.*]] = "relax.conv"(%arg0, %[[W]], %[[B]])
// CHECK-NEXT:    return %[[C]]
func.func @batch_norm(%x: tensor<1x2x4x4xf32>) -> tensor<1x1x4x4xf32> {
  %w = "relax.constant"() {value = dense<1.0> : tensor<1x2x1x1xf32>} : () -> tensor<1x2x1x1xf32>
  %scale = "relax.constant"() {value = dense<3.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %bias = "relax.constant"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %mean = "relax.constant"() {value = dense<2.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %variance = "relax.constant"() {value = dense<4.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x2x4x4xf32>, tensor<1x2x1x1xf32>) -> tensor<1x1x4x4xf32>
  %1 = "relax.batch_norm"(%0, %scale, %bias, %mean, %variance) {epsilon = 0.0 : f64} : (tensor<1x1x4x4xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x1x4x4xf32>
  return %1 : tensor<1x1x4x4xf32>
}

// Anywhere else it is a multiplication and an addition.
// CHECK-LABEL: func.func @affine(
// CHECK:         %[[M:.*]] = "relax.multiply"(%arg0, %{{.*}}) : (tensor<1x1x4x4xf32>, tensor<1x1x1x1xf32>)
// CHECK:         "relax.add"(%[[M]], %{{.*}}) : (tensor<1x1x4x4xf32>, tensor<1x1x1x1xf32>)
func.func @affine(%x: tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32> {
  %c = "relax.constant"() {value = dense<3.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = "relax.batch_norm"(%x, %c, %c, %c, %c) : (tensor<1x1x4x4xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x1x4x4xf32>
  return %0 : tensor<1x1x4x4xf32>
}

// Constants per channel after a convolution: its bias; factors: its weights and its bias.
// CHECK-LABEL: func.func @conv(
// CHECK-DAG:     %[[W:.*]] = "relax.constant"() {value = dense<{{.*}}[2.000000e+00]{{.*}}, {{.*}}[4.000000e+00]{{.*}}> : tensor<2x1x1x1xf32>}
// CHECK-DAG:     %[[B:.*]] = "relax.constant"() {value = dense<[1.000000e+01, 2.000000e+01]> : tensor<2xf32>}
// CHECK:         %[[C:.*]] = "relax.conv"(%arg0, %[[W]], %[[B]])
// CHECK-NEXT:    return %[[C]]
func.func @conv(%x: tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %w = "relax.constant"() {value = dense<1.0> : tensor<2x1x1x1xf32>} : () -> tensor<2x1x1x1xf32>
  %five = "relax.constant"() {value = dense<5.0> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
  %factor = "relax.constant"() {value = dense<[[[2.0]], [[4.0]]]> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %1 = "relax.add"(%0, %five) : (tensor<1x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %2 = "relax.multiply"(%1, %factor) : (tensor<1x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<1x2x4x4xf32>
  return %2 : tensor<1x2x4x4xf32>
}

// A matrix product and the constant added to it are scaled alike.
// CHECK-LABEL: func.func @matmul(
// CHECK:         %[[W:.*]] = "relax.constant"() {value = dense<{{\[\[}}2.000000e+00, 4.000000e+00]]> : tensor<1x2xf32>}
// CHECK:         %[[M:.*]] = "relax.matmul"(%arg0, %[[W]])
// CHECK:         %[[B:.*]] = "relax.constant"() {value = dense<[6.000000e+00, 1.200000e+01]> : tensor<2xf32>}
// CHECK:         %[[A:.*]] = "relax.add"(%[[M]], %[[B]])
// CHECK-NEXT:    return %[[A]]
func.func @matmul(%x: tensor<4x1xf32>) -> tensor<4x2xf32> {
  %w = "relax.constant"() {value = dense<1.0> : tensor<1x2xf32>} : () -> tensor<1x2xf32>
  %three = "relax.constant"() {value = dense<3.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %divisor = "relax.constant"() {value = dense<[0.5, 0.25]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<4x1xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>
  %1 = "relax.add"(%0, %three) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %2 = "relax.divide"(%1, %divisor) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}

// Not where the product is used twice, the factors differ along another dim, or the weights are not constants.
// CHECK-LABEL: func.func @declined(
// CHECK-COUNT-3: "relax.multiply"
func.func @declined(%x: tensor<4x1xf32>, %v: tensor<1x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
  %w = "relax.constant"() {value = dense<1.0> : tensor<1x2xf32>} : () -> tensor<1x2xf32>
  %two = "relax.constant"() {value = dense<2.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %rows = "relax.constant"() {value = dense<2.0> : tensor<4x1xf32>} : () -> tensor<4x1xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<4x1xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>
  %1 = "relax.multiply"(%0, %two) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %2 = "relax.matmul"(%rows, %w) : (tensor<4x1xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>
  %3 = "relax.multiply"(%2, %rows) : (tensor<4x2xf32>, tensor<4x1xf32>) -> tensor<4x2xf32>
  %4 = "relax.matmul"(%x, %v) : (tensor<4x1xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>
  %5 = "relax.multiply"(%4, %two) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %0, %1, %3, %5 : tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>
}
