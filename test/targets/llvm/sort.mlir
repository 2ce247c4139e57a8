// RUN: mirlo-opt %s --split-input-file --legalize=target=llvm | FileCheck %s

// Counts of the digits of all four bytes, then one pass for each byte.
// CHECK-LABEL: func.func private @sort({{.*}}memref<2x100xf32>, {{.*}}memref<2x100xf32>)
// CHECK:       memref<4x256xi64>
// CHECK-NOT:   scf.while
// CHECK-COUNT-4: arith.andi %{{.*}}, %c255
// CHECK-NOT:   scf.while
func.func @test_sort(%arg0: tensor<2x100xf32>) -> tensor<2x100xf32> {
  %0 = "relax.sort"(%arg0) : (tensor<2x100xf32>) -> tensor<2x100xf32>
  return %0 : tensor<2x100xf32>
}

// -----

// Short rows are merged.
// CHECK-LABEL: func.func private @sort({{.*}}memref<2x10xf32>, {{.*}}memref<2x10xf32>)
// CHECK:       scf.while
func.func @test_short(%arg0: tensor<2x10xf32>) -> tensor<2x10xf32> {
  %0 = "relax.sort"(%arg0) : (tensor<2x10xf32>) -> tensor<2x10xf32>
  return %0 : tensor<2x10xf32>
}
