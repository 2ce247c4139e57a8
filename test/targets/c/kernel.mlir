// RUN: mirlo-opt %s --pipeline=c --emit-code=c:c --kernel fused_matmul_relu | FileCheck %s

// A product has accumulators along its rows, what follows is computed when they are stored. Names of the model are in
// comments only.
// CHECK:      // kernel fused_matmul_relu
// CHECK-NEXT: // node up_/
// CHECK:      static void kernel_fused_matmul_relu(const float *x0, const float *x1, float *restrict y2) {
// CHECK-NEXT:   float v0[48];
// CHECK-NEXT:   for (int64_t i0 = 0; i0 < 96; i0 += 48) {
// CHECK-NEXT:     for (int64_t i1 = 0; i1 < 3; i1 += 1) {
// CHECK-NEXT:       for (int64_t i2 = 0; i2 < 48; i2 += 1) {
// CHECK-NEXT:         v0[i2] = 0.0f;
// CHECK-NEXT:       }
// CHECK-NEXT:       for (int64_t i3 = 0; i3 < 8; i3 += 4) {
// CHECK-NEXT:         const int64_t v1 = i3 + 1;
// CHECK-NEXT:         const int64_t v2 = i3 + 2;
// CHECK-NEXT:         const int64_t v3 = i3 + 3;
// CHECK-NEXT:         const float v4 = x0[i1 * 8 + i3];
// CHECK-NEXT:         const float v5 = x0[i1 * 8 + v1];
// CHECK-NEXT:         const float v6 = x0[i1 * 8 + v2];
// CHECK-NEXT:         const float v7 = x0[i1 * 8 + v3];
// CHECK-NEXT:         for (int64_t i4 = 0; i4 < 48; i4 += 1) {
// CHECK-NEXT:           const float v8 = v0[i4];
// CHECK-NEXT:           const int64_t v9 = i0 + i4;
// CHECK-NEXT:           const float v10 = x1[i3 * 96 + v9];
// CHECK-NEXT:           const float v11 = v4 * v10;
// CHECK-NEXT:           const float v12 = v8 + v11;
// CHECK-NEXT:           const float v13 = x1[v1 * 96 + v9];
// CHECK-NEXT:           const float v14 = v5 * v13;
// CHECK-NEXT:           const float v15 = v12 + v14;
// CHECK-NEXT:           const float v16 = x1[v2 * 96 + v9];
// CHECK-NEXT:           const float v17 = v6 * v16;
// CHECK-NEXT:           const float v18 = v15 + v17;
// CHECK-NEXT:           const float v19 = x1[v3 * 96 + v9];
// CHECK-NEXT:           const float v20 = v7 * v19;
// CHECK-NEXT:           const float v21 = v18 + v20;
// CHECK-NEXT:           v0[i4] = v21;
// CHECK-NEXT:         }
// CHECK-NEXT:       }
// CHECK-NEXT:       for (int64_t i5 = 0; i5 < 48; i5 += 1) {
// CHECK-NEXT:         const float v22 = v0[i5];
// CHECK-NEXT:         const float v23 = max_float(v22, 0.0f);
// CHECK-NEXT:         y2[i1 * 96 + i0 + i5] = v23;
// CHECK-NEXT:       }
// CHECK-NEXT:     }
// CHECK-NEXT:   }
// CHECK-NEXT: }
func.func @main(%x: tensor<3x8xf32> {relax.name = "x"}, %w: tensor<8x96xf32> {relax.name = "w"}) -> (tensor<3x96xf32> {relax.name = "y"}) {
  %0 = "relax.matmul"(%x, %w) : (tensor<3x8xf32>, tensor<8x96xf32>) -> tensor<3x96xf32> loc("up*/")
  %1 = "relax.relu"(%0) : (tensor<3x96xf32>) -> tensor<3x96xf32>
  return %1 : tensor<3x96xf32>
}
