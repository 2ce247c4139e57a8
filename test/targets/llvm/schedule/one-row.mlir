// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops="widen=true" --fuse-tir --canonicalize --schedule="machine=avx512" --split-input-file | FileCheck %s

// Many rows share panels that are converted in a copy. A single row reads the constant where it is, and copies nothing.
// CHECK-LABEL: func.func private @fused_cast_matmul_relu(
// CHECK-SAME:    one_row = true, packed = true
// CHECK:         %[[B:.*]] = arith.cmpi eq, %{{.*}}, %{{.*}} : index
// CHECK:         %[[N:.*]] = arith.cmpi eq, %{{.*}}, %{{.*}} : index
// CHECK:         %[[ONE:.*]] = arith.andi %[[B]], %[[N]] : i1
// CHECK:         scf.if %[[ONE]] {
// CHECK-COUNT-8:   arith.extf {{.*}} : vector<16xbf16> to vector<16xf32>
// CHECK-NOT:       memref<8192xf32>
// CHECK:         } else {
// CHECK:           arith.extf
// CHECK:           vector.store %{{.*}} : memref<8192xf32>
func.func @main(%x: tensor<?x?x256xf32, #relax.dims<["b", "n", 256]>>) -> tensor<?x?x512xf32, #relax.dims<["b", "n", 512]>> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<256x512xbf16>
  %0 = "relax.cast"(%w) {dtype = f32} : (tensor<256x512xbf16>) -> tensor<256x512xf32>
  %1 = "relax.matmul"(%x, %0)
    : (tensor<?x?x256xf32, #relax.dims<["b", "n", 256]>>, tensor<256x512xf32>) -> tensor<?x?x512xf32, #relax.dims<["b", "n", 512]>>
  %2 = "relax.relu"(%1) : (tensor<?x?x512xf32, #relax.dims<["b", "n", 512]>>) -> tensor<?x?x512xf32, #relax.dims<["b", "n", 512]>>
  return %2 : tensor<?x?x512xf32, #relax.dims<["b", "n", 512]>>
}

// -----

// Some rows are always there, and f32 needs no copy: one kernel.
// CHECK-NOT: one_row
func.func @main(%x: tensor<?x4x256xf32, #relax.dims<["n", 4, 256]>>, %v: tensor<256x512xf32>)
    -> (tensor<?x4x512xf32, #relax.dims<["n", 4, 512]>>, tensor<?x4x512xf32, #relax.dims<["n", 4, 512]>>) {
  %w = "relax.constant"() {param = "w"} : () -> tensor<256x512xbf16>
  %0 = "relax.cast"(%w) {dtype = f32} : (tensor<256x512xbf16>) -> tensor<256x512xf32>
  %1 = "relax.matmul"(%x, %0)
    : (tensor<?x4x256xf32, #relax.dims<["n", 4, 256]>>, tensor<256x512xf32>) -> tensor<?x4x512xf32, #relax.dims<["n", 4, 512]>>
  %2 = "relax.matmul"(%x, %v)
    : (tensor<?x4x256xf32, #relax.dims<["n", 4, 256]>>, tensor<256x512xf32>) -> tensor<?x4x512xf32, #relax.dims<["n", 4, 512]>>
  return %1, %2 : tensor<?x4x512xf32, #relax.dims<["n", 4, 512]>>, tensor<?x4x512xf32, #relax.dims<["n", 4, 512]>>
}
