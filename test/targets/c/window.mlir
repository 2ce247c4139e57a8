// RUN: mirlo-opt %s --pipeline=c --emit-code=c:c --kernel conv | FileCheck %s

// Where a window is inside of the image there are no tests of its edges. Beyond them, constants are multiplied.
// CHECK:      static void kernel_conv(
// CHECK:      for (int64_t i3 = 0; i3 < 3; i3 += 1) {
// CHECK-NEXT:   for (int64_t i4 = 0; i4 < 3; i4 += 1) {
// CHECK-NEXT:     const int64_t v1 = (i0 + i3) + (-1);
// CHECK-NEXT:     const bool v2 = (uint64_t)v1 < (uint64_t)8;
// CHECK-NEXT:     const int64_t v3 = (i1 + i4) + (-1);
// CHECK-NEXT:     const bool v4 = (uint64_t)v3 < (uint64_t)8;
// CHECK-NEXT:     const bool v5 = v2 & v4;
// CHECK-NEXT:     if (v5) {
// CHECK-NEXT:       const float v6 = x0[(v1 * 8 + v3) * 4 + 0];
// CHECK-NEXT:       const float v7 = x0[(v1 * 8 + v3) * 4 + 1];
// CHECK-NEXT:       const float v8 = x0[(v1 * 8 + v3) * 4 + 2];
// CHECK-NEXT:       const float v9 = x0[(v1 * 8 + v3) * 4 + 3];
// CHECK-NEXT:       for (int64_t i5 = 0; i5 < 16; i5 += 1) {
// CHECK-NOT:          if
// CHECK:          } else {
// CHECK-NEXT:       for (int64_t i6 = 0; i6 < 16; i6 += 1) {
// CHECK-NOT:          x0
// CHECK:          y2[
func.func @main(%x: tensor<1x8x8x4xf32> {relax.name = "x"}, %w: tensor<3x3x4x16xf32> {relax.name = "w"}) -> (tensor<1x8x8x16xf32> {relax.name = "y"}) {
  %0 = "relax.conv"(%x, %w) {data_layout = "N*C", kernel_layout = "*IO", padding = array<i64: 1, 1, 1, 1>} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x8x8x16xf32>
  return %0 : tensor<1x8x8x16xf32>
}
