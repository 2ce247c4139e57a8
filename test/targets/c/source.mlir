// RUN: mirlo-opt %s --fuse-by-pattern=target=c --merge-composites --outline-external --codegen-external="target=c options=source-only" -o %t.mlir
// RUN: %python -c "import sys; print(open(sys.argv[1]).read().replace(chr(92) * 2 + 'n', chr(10)))" %t.mlir | FileCheck %s

// Chains of elementwise operators are one loop; values that are no longer needed give their place; a bias of a few
// numbers stands in the source, a weight is handed in.
// CHECK:       params[0]: float32[4, 3, 5, 5] constant_
// CHECK:       size_t c_0_workspace(void) {
// CHECK-NEXT:    return 1024;
// CHECK:       void c_0_run(const void *const *params, const float *in_x0, float *out0, void *workspace) {
// CHECK:         const float *[[W:const_constant_[0-9a-f]+]] = (const float *)params[0];
// CHECK-NEXT:    static const float [[B:const_constant_[0-9a-f]+]][] = {0.5f, 0.5f, 0.5f, 0.5f};
// CHECK-NEXT:    char *const slot0 = (char *)workspace;
// CHECK-NEXT:    float *[[C:v[0-9]+]] = (float *)slot0;
// CHECK:         /* relax.conv: float[1, 4, 8, 8] */
// CHECK:         float sum = [[B]][o];
// CHECK:         const int64_t s0 = y0 + k0 * 2 - 4;
// CHECK:         if (s0 >= 0 && s0 < 8 && s1 >= 0 && s1 < 8) {
// CHECK-NEXT:      sum += (float)in_x0[(c * 8 + s0) * 8 + s1] * [[W]][((o * 3 + c) * 5 + k0) * 5 + k1];
// CHECK:         /* relax.sigmoid: float[1, 4, 8, 8] */
// CHECK-NEXT:    /* relax.multiply: float[1, 4, 8, 8] */
// CHECK-NEXT:    {
// CHECK-NEXT:      for (int64_t i = 0; i < 256; ++i) {
// CHECK-NEXT:        const float e0 = [[C]][i];
// CHECK-NEXT:        const float r0 = mirlo_sigmoidf(e0);
// CHECK-NEXT:        out0[i] = e0 * r0;
// CHECK:       int32_t c_0(void *params, DLTensor **tensors, int64_t count) {
func.func @main(%x: tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32> {
  %w = "relax.constant"() {value = dense<0.1> : tensor<4x3x5x5xf32>} : () -> tensor<4x3x5x5xf32>
  %b = "relax.constant"() {value = dense<0.5> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.conv"(%x, %w, %b) {padding = array<i64: 4, 4, 4, 4>, dilations = array<i64: 2, 2>} : (tensor<1x3x8x8xf32>, tensor<4x3x5x5xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.sigmoid"(%0) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.multiply"(%0, %1) : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %2 : tensor<1x4x8x8xf32>
}
