// RUN: mirlo-opt %s --group-images=explain -o %t 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: FileCheck %s < %t

// A matrix of 9 MiB, in eight groups of two images.
// WHY:         the gradient has groups of 2
// CHECK-LABEL: func.func @large(
// CHECK:         %[[X:.*]] = "relax.reshape"(%arg0) {{.*}} -> tensor<8x2x32x32x16xf32>
// CHECK:         %[[G:.*]] = "relax.reshape"(%arg1) {{.*}} -> tensor<8x2x32x32x8xf32>
// CHECK:         %[[ZEROS:.*]] = "relax.full"() {{.*}} -> tensor<3x3x16x8xf32>
// CHECK:         %[[LOOP:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %[[ZEROS]])
// CHECK:         ^bb0(%{{.*}}, %[[SUM:.*]]: tensor<3x3x16x8xf32>):
// CHECK:           "relax.gather"(%[[X]],
// CHECK:           "relax.gather"(%[[G]],
// CHECK:           %[[PART:.*]] = "relax.conv_weight_gradient"({{.*}}dilations = array<i64: 2, 2>{{.*}}padding = array<i64: 2, 2, 2, 2>{{.*}} : (tensor<2x32x32x16xf32>, tensor<2x32x32x8xf32>)
// CHECK:           "relax.add"(%[[SUM]], %[[PART]])
// CHECK:         return %[[LOOP]]#1
func.func @large(%x: tensor<16x32x32x16xf32>, %g: tensor<16x32x32x8xf32>) -> tensor<3x3x16x8xf32> {
  %0 = "relax.conv_weight_gradient"(%x, %g) {window = array<i64: 3, 3>, padding = array<i64: 2, 2, 2, 2>, dilations = array<i64: 2, 2>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<16x32x32x16xf32>, tensor<16x32x32x8xf32>) -> tensor<3x3x16x8xf32>
  return %0 : tensor<3x3x16x8xf32>
}

// CHECK-LABEL: func.func @declined(
// CHECK-NOT:     scf.while
// CHECK:         return
func.func @declined(%x: tensor<16x32x32x32xf32>, %g: tensor<16x32x32x32xf32>, %s: tensor<2x8x8x32xf32>, %t: tensor<2x8x8x32xf32>, %d: tensor<?x32x32x32xf32, #relax.dims<["batch", 32, 32, 32]>>, %e: tensor<?x32x32x32xf32, #relax.dims<["batch", 32, 32, 32]>>)
    -> (tensor<1x1x32x32xf32>, tensor<3x3x32x32xf32>, tensor<3x3x1x32xf32>, tensor<3x3x32x32xf32>) {
  // WHY: the gradient is computed as a whole: the images are the matrix of windows
  %0 = "relax.conv_weight_gradient"(%x, %g) {window = array<i64: 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<16x32x32x32xf32>, tensor<16x32x32x32xf32>) -> tensor<1x1x32x32xf32>
  // WHY: the gradient is computed as a whole: the matrix of all windows is small (bytes=147456)
  %1 = "relax.conv_weight_gradient"(%s, %t) {window = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<2x8x8x32xf32>, tensor<2x8x8x32xf32>) -> tensor<3x3x32x32xf32>
  // WHY: the gradient is computed as a whole: it is no product with a matrix of windows (groups=32, layout=N*C)
  %2 = "relax.conv_weight_gradient"(%x, %g) {window = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, groups = 32 : i64, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<16x32x32x32xf32>, tensor<16x32x32x32xf32>) -> tensor<3x3x1x32xf32>
  // WHY: the gradient is computed as a whole: the size of the batch, or of an image, is known at run time only
  %3 = "relax.conv_weight_gradient"(%d, %e) {window = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<?x32x32x32xf32, #relax.dims<["batch", 32, 32, 32]>>, tensor<?x32x32x32xf32, #relax.dims<["batch", 32, 32, 32]>>) -> tensor<3x3x32x32xf32>
  return %0, %1, %2, %3 : tensor<1x1x32x32xf32>, tensor<3x3x32x32xf32>, tensor<3x3x1x32xf32>, tensor<3x3x32x32xf32>
}
