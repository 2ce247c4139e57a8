// RUN: mirlo-opt %s --pipeline=c --emit-code=c:c --kernel fused_matmul_relu | FileCheck %s

// A product has accumulators along its rows, what follows is computed when they are stored. Names of the model are in
// comments only.
// CHECK:      // kernel fused_matmul_relu
// CHECK-NEXT: // node up_/
// CHECK:      static void kernel_fused_matmul_relu(const float *x0, const float *x1, float *restrict y2) {
// CHECK-NEXT:   float v0[48];
// CHECK-NEXT:   for (int64_t i0 = 0; i0 < 3; i0 += 1) {
// CHECK-NEXT:     for (int64_t i1 = 0; i1 < 96; i1 += 48) {
// CHECK-NEXT:       for (int64_t i2 = 0; i2 < 48; i2 += 1) {
// CHECK-NEXT:         v0[i2] = 0.0f;
// CHECK-NEXT:       }
// CHECK-NEXT:       for (int64_t i3 = 0; i3 < 5; i3 += 1) {
// CHECK-NEXT:         const float v1 = x0[i0 * 5 + i3];
// CHECK-NEXT:         for (int64_t i4 = 0; i4 < 48; i4 += 1) {
// CHECK-NEXT:           const float v2 = x1[i3 * 96 + i1 + i4];
// CHECK-NEXT:           const float v3 = v0[i4];
// CHECK-NEXT:           const float v4 = v1 * v2;
// CHECK-NEXT:           const float v5 = v3 + v4;
// CHECK-NEXT:           v0[i4] = v5;
// CHECK-NEXT:         }
// CHECK-NEXT:       }
// CHECK-NEXT:       for (int64_t i5 = 0; i5 < 48; i5 += 1) {
// CHECK-NEXT:         const float v6 = v0[i5];
// CHECK-NEXT:         const float v7 = max_float(v6, 0.0f);
// CHECK-NEXT:         y2[i0 * 96 + i1 + i5] = v7;
func.func @main(%x: tensor<3x5xf32> {relax.name = "x"}, %w: tensor<5x96xf32> {relax.name = "w"}) -> (tensor<3x96xf32> {relax.name = "y"}) {
  %0 = "relax.matmul"(%x, %w) : (tensor<3x5xf32>, tensor<5x96xf32>) -> tensor<3x96xf32> loc("up*/")
  %1 = "relax.relu"(%0) : (tensor<3x96xf32>) -> tensor<3x96xf32>
  return %1 : tensor<3x96xf32>
}
