// RUN: mirlo-opt %s --pipeline=c --emit-code=c:c --kernel fused_matmul_relu | FileCheck %s

// A product has accumulators along its rows, and four steps are added at a time. What follows is computed when they are
// stored. Names of the model are in
// comments only.
// CHECK:      // kernel fused_matmul_relu
// CHECK-NEXT: // node up_/
// CHECK:      static void kernel_fused_matmul_relu(const float *x0, const float *x1, float *restrict y2) {
// CHECK-NEXT:   float v0[48];
// CHECK-NEXT:   for (int64_t i0 = 0; i0 < 2; i0 += 1) {
// CHECK-NEXT:     for (int64_t i1 = 0; i1 < 3; i1 += 1) {
// CHECK-NEXT:       for (int64_t i2 = 0; i2 < 48; i2 += 1) {
// CHECK-NEXT:         v0[i2] = 0.0f;
// CHECK-NEXT:       }
// CHECK-NEXT:       for (int64_t i3 = 0; i3 < 2; i3 += 1) {
// CHECK-NEXT:         const int64_t v1 = i3 * 4;
// CHECK-NEXT:         const float v2 = x0[i1 * 8 + v1];
// CHECK-NEXT:         const int64_t v3 = v1 + 1;
// CHECK-NEXT:         const float v4 = x0[i1 * 8 + v3];
// CHECK-NEXT:         const int64_t v5 = v1 + 2;
// CHECK-NEXT:         const float v6 = x0[i1 * 8 + v5];
// CHECK-NEXT:         const int64_t v7 = v1 + 3;
// CHECK-NEXT:         const float v8 = x0[i1 * 8 + v7];
// CHECK-NEXT:         for (int64_t i4 = 0; i4 < 48; i4 += 1) {
// CHECK-NEXT:           const float v9 = v0[i4];
// CHECK-NEXT:           const int64_t v10 = (i0 * 48) + i4;
// CHECK-NEXT:           const float v11 = x1[v1 * 96 + v10];
// CHECK-NEXT:           const float v12 = v2 * v11;
// CHECK-NEXT:           const float v13 = v9 + v12;
// CHECK-NEXT:           v0[i4] = v13;
// CHECK-NEXT:           const float v14 = v0[i4];
// CHECK-NEXT:           const float v15 = x1[v3 * 96 + v10];
// CHECK-NEXT:           const float v16 = v4 * v15;
// CHECK-NEXT:           const float v17 = v14 + v16;
// CHECK-NEXT:           v0[i4] = v17;
// CHECK-NEXT:           const float v18 = v0[i4];
// CHECK-NEXT:           const float v19 = x1[v5 * 96 + v10];
// CHECK-NEXT:           const float v20 = v6 * v19;
// CHECK-NEXT:           const float v21 = v18 + v20;
// CHECK-NEXT:           v0[i4] = v21;
// CHECK-NEXT:           const float v22 = v0[i4];
// CHECK-NEXT:           const float v23 = x1[v7 * 96 + v10];
// CHECK-NEXT:           const float v24 = v8 * v23;
// CHECK-NEXT:           const float v25 = v22 + v24;
// CHECK-NEXT:           v0[i4] = v25;
// CHECK-NEXT:         }
// CHECK-NEXT:       }
// CHECK-NEXT:       for (int64_t i5 = 0; i5 < 48; i5 += 1) {
// CHECK-NEXT:         const float v26 = v0[i5];
// CHECK-NEXT:         const float v27 = max_float(v26, 0.0f);
// CHECK-NEXT:         y2[i1 * 96 + (i0 * 48) + i5] = v27;
// CHECK-NEXT:       }
// CHECK-NEXT:     }
// CHECK-NEXT:   }
// CHECK-NEXT: }
func.func @main(%x: tensor<3x8xf32> {relax.name = "x"}, %w: tensor<8x96xf32> {relax.name = "w"}) -> (tensor<3x96xf32> {relax.name = "y"}) {
  %0 = "relax.matmul"(%x, %w) : (tensor<3x8xf32>, tensor<8x96xf32>) -> tensor<3x96xf32> loc("up*/")
  %1 = "relax.relu"(%0) : (tensor<3x96xf32>) -> tensor<3x96xf32>
  return %1 : tensor<3x96xf32>
}
