// RUN: mirlo-opt %s --narrow-caches=dtype=f16 | FileCheck %s
// RUN: mirlo-opt %s --narrow-caches=dtype=i8 | FileCheck %s --check-prefix=I8

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

// Attention reads the pages of the narrower type. In i8 each head of a row has a scale, which is written as the row is.
// CHECK-LABEL: func.func @attention(
// CHECK:         "relax.paged_attention"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {{.*}} : (tensor<1x4x1x8xf32>, tensor<3x4x2x8xf16>, tensor<3x4x2x8xf16>,
// I8-LABEL:    func.func @attention(
// I8-SAME:       %arg0: tensor<3x4x2x8xi8> {relax.name = "k"}, %arg1: tensor<3x4x2x8xi8> {relax.name = "v"}
// I8-SAME:       %arg7: tensor<3x4x2x1xf32> {relax.name = "k.scale"}, %arg8: tensor<3x4x2x1xf32> {relax.name = "v.scale"}
// I8:            "relax.reduce_max"(%{{.*}}) {axes = array<i64: 3>, keepdims = true} : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x1xf32>
// I8:            %[[NEW:.*]] = "relax.quantize"(%{{.*}}) {axis = 3 : i64, block = 8 : i64, dtype = i8} : (tensor<1x1x5x16xf32>, tensor<1x1x5x2xf32>) -> tensor<1x1x5x16xi8>
// I8:            %[[ROWS:.*]] = "relax.cache_write"(%{{.*}}, %[[NEW]], %arg3)
// I8:            %[[K:.*]] = "relax.reshape"(%[[ROWS]]) {{.*}} -> tensor<3x4x2x8xi8>
// I8:            %[[KS:.*]] = "relax.reshape"(%{{.*}}) {{.*}} -> tensor<3x4x2x1xf32>
// I8:            %[[Y:.*]] = "relax.paged_attention"(%arg4, %[[K]], %{{.*}}, %arg5, %arg6, %[[KS]], %{{.*}})
// I8:            return %[[Y]], %[[K]], %{{.*}}, %[[KS]], %{{.*}}
func.func @attention(
    %k: tensor<3x4x2x8xf32> {relax.name = "k"}, %v: tensor<3x4x2x8xf32> {relax.name = "v"},
    %new: tensor<1x1x5x16xf32> {relax.name = "new"}, %at: tensor<1x5xi64> {relax.name = "at"},
    %query: tensor<1x4x1x8xf32> {relax.name = "query"}, %table: tensor<1x2xi64> {relax.name = "table"},
    %lengths: tensor<1xi64> {relax.name = "lengths"})
    -> (tensor<1x4x1x8xf32> {relax.name = "y"}, tensor<3x4x2x8xf32> {relax.name = "next.k"},
        tensor<3x4x2x8xf32> {relax.name = "next.v"}) {
  %0 = "relax.reshape"(%k) {shape = [1, 1, 12, 16]} : (tensor<3x4x2x8xf32>) -> tensor<1x1x12x16xf32>
  %1 = "relax.cache_write"(%0, %new, %at) {shape = [1, 1, 12, 16]} : (tensor<1x1x12x16xf32>, tensor<1x1x5x16xf32>, tensor<1x5xi64>) -> tensor<1x1x12x16xf32>
  %2 = "relax.reshape"(%1) {shape = [3, 4, 2, 8]} : (tensor<1x1x12x16xf32>) -> tensor<3x4x2x8xf32>
  %3 = "relax.reshape"(%v) {shape = [1, 1, 12, 16]} : (tensor<3x4x2x8xf32>) -> tensor<1x1x12x16xf32>
  %4 = "relax.cache_write"(%3, %new, %at) {shape = [1, 1, 12, 16]} : (tensor<1x1x12x16xf32>, tensor<1x1x5x16xf32>, tensor<1x5xi64>) -> tensor<1x1x12x16xf32>
  %5 = "relax.reshape"(%4) {shape = [3, 4, 2, 8]} : (tensor<1x1x12x16xf32>) -> tensor<3x4x2x8xf32>
  %6 = "relax.paged_attention"(%query, %2, %5, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<1x4x1x8xf32>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>, tensor<1x2xi64>, tensor<1xi64>) -> tensor<1x4x1x8xf32>
  return %6, %2, %5 : tensor<1x4x1x8xf32>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>
}
