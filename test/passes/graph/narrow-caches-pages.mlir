// RUN: mirlo-opt %s --narrow-caches=dtype=f16 | FileCheck %s
// RUN: not mirlo-opt %s --narrow-caches=dtype=i8 2>&1 | FileCheck %s --check-prefix=INTEGER
// INTEGER: no f32 input is a cache that grows in place: i8 caches need one

// A cache in pages is written as one with one head: both reshapes have the type, and the pages that are read are converted.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    tensor<3x4x2x8xf16>, %arg1: tensor<1x1x5x16xf32>
// CHECK-SAME:    -> (tensor<3x4x2x8xf16>, tensor<2x4x2x8xf32>)
// CHECK:         %[[FLAT:.*]] = "relax.reshape"(%arg0) {{.*}} -> tensor<1x1x12x16xf16>
// CHECK:         %[[NEW:.*]] = "relax.cast"(%arg1) {{.*}} -> tensor<1x1x5x16xf16>
// CHECK:         %[[NEXT:.*]] = "relax.cache_write"(%[[FLAT]], %[[NEW]], %arg2)
// CHECK:         %[[PAGES:.*]] = "relax.reshape"(%[[NEXT]]) {{.*}} -> tensor<3x4x2x8xf16>
// CHECK:         %[[PART:.*]] = "relax.gather"(%[[PAGES]], %arg3)
// CHECK:         %[[ROWS:.*]] = "relax.cast"(%[[PART]]) {{.*}} -> tensor<2x4x2x8xf32>
// CHECK:         return %[[PAGES]], %[[ROWS]]
func.func @main(
    %cache: tensor<3x4x2x8xf32>, %new: tensor<1x1x5x16xf32>, %at: tensor<1x5xi64>, %table: tensor<2xi64>)
    -> (tensor<3x4x2x8xf32>, tensor<2x4x2x8xf32>) {
  %0 = "relax.reshape"(%cache) {shape = [1, 1, 12, 16]} : (tensor<3x4x2x8xf32>) -> tensor<1x1x12x16xf32>
  %1 = "relax.cache_write"(%0, %new, %at) {shape = [1, 1, 12, 16]} : (tensor<1x1x12x16xf32>, tensor<1x1x5x16xf32>, tensor<1x5xi64>) -> tensor<1x1x12x16xf32>
  %2 = "relax.reshape"(%1) {shape = [3, 4, 2, 8]} : (tensor<1x1x12x16xf32>) -> tensor<3x4x2x8xf32>
  %3 = "relax.gather"(%2, %table) : (tensor<3x4x2x8xf32>, tensor<2xi64>) -> tensor<2x4x2x8xf32>
  return %2, %3 : tensor<3x4x2x8xf32>, tensor<2x4x2x8xf32>
}
