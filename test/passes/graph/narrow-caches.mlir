// RUN: mirlo-opt %s --narrow-caches=dtype=bf16 | FileCheck %s
// RUN: not mirlo-opt %s --narrow-caches=dtype=i4 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: dtype must be bf16, f16 or i8, got 'i4'

// The input, its output and the write have the type; new rows are rounded, rows that are read are converted.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    tensor<1x2x8x4xbf16>, %arg1: tensor<1x2x1x4xf32>
// CHECK-SAME:    -> (tensor<1x2x8x4xbf16>, tensor<1x2x3x4xf32>, tensor<1x2x8x4xf32>)
// CHECK:         %[[NEW:.*]] = "relax.cast"(%arg1) {{.*}} -> tensor<1x2x1x4xbf16>
// CHECK:         %[[NEXT:.*]] = "relax.cache_write"(%arg0, %[[NEW]], %arg2)
// CHECK:         %[[PART:.*]] = "relax.strided_slice"(%[[NEXT]])
// CHECK:         %[[ROWS:.*]] = "relax.cast"(%[[PART]]) {{.*}} -> tensor<1x2x3x4xf32>
// CHECK:         %[[ALL:.*]] = "relax.cast"(%[[NEXT]]) {{.*}} -> tensor<1x2x8x4xf32>
// CHECK:         %[[RELU:.*]] = "relax.relu"(%[[ALL]])
// CHECK:         return %[[NEXT]], %[[ROWS]], %[[RELU]]
func.func @main(%cache: tensor<1x2x8x4xf32>, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>)
    -> (tensor<1x2x8x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x8x4xf32>) {
  %0 = "relax.cache_write"(%cache, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %1 = "relax.strided_slice"(%0) {axes = array<i64: 2>, begin = array<i64: 0>, end = array<i64: 3>, strides = array<i64: 1>} : (tensor<1x2x8x4xf32>) -> tensor<1x2x3x4xf32>
  %2 = "relax.relu"(%0) : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %0, %1, %2 : tensor<1x2x8x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x8x4xf32>
}
