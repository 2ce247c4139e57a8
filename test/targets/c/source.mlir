// RUN: mirlo-opt %s --fuse-by-pattern=target=c --merge-composites --outline-external --codegen-external="target=c options=source-only" -o %t.mlir
// RUN: %python -c "import sys; print(open(sys.argv[1]).read().replace(chr(92) * 2 + 'n', chr(10)))" %t.mlir | FileCheck %s

// A region is planned as a model of its own: kernels, the function that calls them, and one on DLPack tensors. Constants in
// the IR stand in the source.
// CHECK:       static void c_0_kernel_fused_conv_sigmoid_multiply(const float *x0, float *restrict y1) {
// CHECK-NEXT:    float v0[256];
// CHECK:             const float v10 = x0[(i3 * 8 + v4) * 8 + v6];
// CHECK:             const float v{{[0-9]+}} = v{{[0-9]+}} * 0.100000001f;
// CHECK:       static void c_0_model_run(void **tensors, void **params, int8_t *arena) {
// CHECK:         float *input0 = (float *)tensors[0];
// CHECK:         c_0_kernel_fused_conv_sigmoid_multiply(input0, output0);
// CHECK:       int32_t c_0(void *params, DLTensor **tensors, int64_t count) {
// CHECK:         arena = (uint64_t)0 < SIZE_MAX ? malloc((size_t)0 + 1) : NULL;
func.func @main(%x: tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32> {
  %w = "relax.constant"() {value = dense<0.1> : tensor<4x3x5x5xf32>} : () -> tensor<4x3x5x5xf32>
  %b = "relax.constant"() {value = dense<0.5> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.conv"(%x, %w, %b) {padding = array<i64: 4, 4, 4, 4>, dilations = array<i64: 2, 2>} : (tensor<1x3x8x8xf32>, tensor<4x3x5x5xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.sigmoid"(%0) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.multiply"(%0, %1) : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %2 : tensor<1x4x8x8xf32>
}
