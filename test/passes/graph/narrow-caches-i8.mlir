// RUN: mirlo-opt %s --narrow-caches=dtype=i8 | FileCheck %s

// Caches of keys and values are integers, and the scales of their rows caches of their own. Attention reads the integers.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %arg0: tensor<1x2x8x4xi8> {relax.name = "k"}, %arg1: tensor<1x2x8x4xi8> {relax.name = "v"}
// CHECK-SAME:    %arg5: tensor<1x2x8x1xf32> {relax.name = "k.scale"}, %arg6: tensor<1x2x8x1xf32> {relax.name = "v.scale"}
// CHECK-SAME:    {relax.name = "next.k.scale"}, tensor<1x2x8x1xf32> {relax.name = "next.v.scale"}
// CHECK:         %[[MAX:.*]] = "relax.reduce_max"
// CHECK:         %[[SCALE:.*]] = "relax.divide"(%{{.*}}, %{{.*}}) : (tensor<1x2x1x1xf32>, tensor<f32>)
// CHECK:         %[[NEW:.*]] = "relax.quantize"(%arg2, %[[SCALE]]) {axis = 3 : i64, block = 4 : i64, dtype = i8}
// CHECK:         %[[K:.*]] = "relax.cache_write"(%arg0, %[[NEW]], %arg4)
// CHECK:         %[[KS:.*]] = "relax.cache_write"(%arg5, %[[SCALE]], %arg4)
// CHECK-DAG:     %[[ROWS:.*]] = "relax.slice_dims"(%[[K]])
// CHECK-DAG:     %[[SCALES:.*]] = "relax.slice_dims"(%[[KS]])
// CHECK:         %[[KEYS:.*]] = "relax.cast"(%[[ROWS]])
// CHECK:         %[[Y:.*]] = "relax.attention_with_scales"(%arg3, %[[KEYS]], %{{.*}}, %[[SCALES]], %{{.*}}) {at_end = true, causal = true
// CHECK:         return %[[Y]], %[[K]], %{{.*}}, %[[KS]], %{{.*}}
func.func @main(%k: tensor<1x2x8x4xf32> {relax.name = "k"}, %v: tensor<1x2x8x4xf32> {relax.name = "v"},
                %new: tensor<1x2x1x4xf32> {relax.name = "new"}, %query: tensor<1x4x1x4xf32> {relax.name = "query"},
                %at: tensor<1x1xi64> {relax.name = "at"})
    -> (tensor<1x4x1x4xf32> {relax.name = "y"}, tensor<1x2x8x4xf32> {relax.name = "next.k"},
        tensor<1x2x8x4xf32> {relax.name = "next.v"}) {
  %0 = "relax.cache_write"(%k, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %1 = "relax.cache_write"(%v, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %2 = "relax.slice_dims"(%0) {begin = [0, 0, 0, 0], shape = [1, 2, 5, 4], strides = array<i64: 1, 1, 1, 1>} : (tensor<1x2x8x4xf32>) -> tensor<1x2x5x4xf32>
  %3 = "relax.slice_dims"(%1) {begin = [0, 0, 0, 0], shape = [1, 2, 5, 4], strides = array<i64: 1, 1, 1, 1>} : (tensor<1x2x8x4xf32>) -> tensor<1x2x5x4xf32>
  %4 = "relax.attention"(%query, %2, %3) {causal = true, at_end = true} : (tensor<1x4x1x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x4x1x4xf32>
  return %4, %0, %1 : tensor<1x4x1x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}

// What is not an attention reads rows that are multiplied by their scales.
// CHECK-LABEL: func.func @other(
// CHECK:         %[[W:.*]] = "relax.cache_write"(%arg0
// CHECK:         %[[S:.*]] = "relax.cache_write"(%arg3
// CHECK:         %[[F:.*]] = "relax.cast"(%[[W]])
// CHECK:         %[[X:.*]] = "relax.multiply"(%[[F]], %[[S]])
// CHECK:         "relax.relu"(%[[X]])
func.func @other(%k: tensor<1x2x8x4xf32>, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>)
    -> (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) {
  %0 = "relax.cache_write"(%k, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %1 = "relax.relu"(%0) : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %0, %1 : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}
