// RUN: mirlo-opt %s --tile-batch="machine=avx2 operators=4 explain" --remove-dead -o %t 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: FileCheck %s < %t
// RUN: mirlo-opt %s --tile-batch="machine=avx2 explain" 2>&1 | FileCheck %s --check-prefix=MODEL
// RUN: mirlo-opt %s --tile-batch="operators=3 explain" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: mirlo-opt %s --tile-batch="operators=9 explain" 2>&1 | FileCheck %s --check-prefix=MOST
// RUN: mirlo-opt %s --tile-batch="threads=64 explain" 2>&1 | FileCheck %s --check-prefix=THREADS

// WHY:     the batch is computed row by row by 4 operators, of 5 before 'relax.reduce_mean'
// MODEL:   the batch is computed as a whole: weights that are read for each row cost what it saves
// AXIS:    as a whole: a value leaves it whose rows are not its first dim (axis=1)
// MOST:    as a whole: no such number of operators compute rows (wanted=9, most=5)
// THREADS: as a whole: one row keeps fewer threads busy (most=4)

// CHECK-LABEL: func.func @main(
// CHECK:         %[[ALL:.*]] = "relax.full"() {dtype = f32, shape = ["batch", 8, 8, 4], value = 0.000000e+00 : f64}
// CHECK:         %[[ROWS:.*]] = "relax.reshape"(%{{.*}}) {shape = []}
// CHECK:         %[[LOOP:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %[[ALL]])
// CHECK:           "relax.less"(%{{.*}}, %[[ROWS]])
// CHECK:         do
// CHECK:           "relax.gather"(%arg0, %{{.*}}) {{.*}} -> tensor<1x8x8x4xf32>
// CHECK:           "relax.conv"({{.*}} -> tensor<1x8x8x4xf32>
// CHECK:           "relax.relu"(
// CHECK:           "relax.permute"({{.*}} -> tensor<8x1x8x4xf32>
// CHECK:           "relax.permute"({{.*}} -> tensor<1x8x8x4xf32>
// CHECK:           "relax.scatter_nd"
// CHECK:         "relax.add"(%[[LOOP]]#1, %arg0)
// CHECK:         "relax.reduce_mean"
func.func @main(%x: tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>) -> tensor<8x8x4xf32> {
  %w = "relax.constant"() {value = dense<0.5> : tensor<3x3x4x4xf32>} : () -> tensor<3x3x4x4xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>, tensor<3x3x4x4xf32>) -> tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>
  %1 = "relax.relu"(%0) : (tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>) -> tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>
  %2 = "relax.permute"(%1) {axes = array<i64: 1, 0, 2, 3>} : (tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>) -> tensor<8x?x8x4xf32, #relax.dims<[8, "batch", 8, 4]>>
  %3 = "relax.permute"(%2) {axes = array<i64: 1, 0, 2, 3>} : (tensor<8x?x8x4xf32, #relax.dims<[8, "batch", 8, 4]>>) -> tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>
  %4 = "relax.add"(%3, %x) : (tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>, tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>) -> tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>
  %5 = "relax.reduce_mean"(%4) {axes = array<i64: 0>, keepdims = false} : (tensor<?x8x8x4xf32, #relax.dims<["batch", 8, 8, 4]>>) -> tensor<8x8x4xf32>
  return %5 : tensor<8x8x4xf32>
}
