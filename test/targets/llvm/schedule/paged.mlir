// RUN: mirlo-opt %s --split-input-file --legalize=target=llvm --schedule="machine=avx512 threads=1" | FileCheck %s

// One token: full pages are read where they are, found by the table, and the next one is prefetched. Others are copied.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:    one_row = true, rule = "paged"
// CHECK:         scf.if
// CHECK:         memref.load %{{.*}} : memref<{{[0-9]+}}xi64>
// CHECK:         memref.prefetch
// CHECK:         vector.store
// CHECK:         } else {
func.func @shared_heads(%query: tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>, %cache: tensor<?x16x2x8xf32, #relax.dims<["n", 16, 2, 8]>>, %table: tensor<?x?xi64, #relax.dims<["b", "m"]>>, %lengths: tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>> {
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>, tensor<?x16x2x8xf32, #relax.dims<["n", 16, 2, 8]>>, tensor<?x16x2x8xf32, #relax.dims<["n", 16, 2, 8]>>, tensor<?x?xi64, #relax.dims<["b", "m"]>>, tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>
  return %0 : tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>
}

// -----

// Each head has keys of its own, and there is always one token.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:    one_row = true, rule = "paged"
// CHECK:         memref.prefetch
func.func @one_token(%query: tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>, %cache: tensor<?x16x2x8xi8, #relax.dims<["n", 16, 2, 8]>>, %table: tensor<?x?xi64, #relax.dims<["b", "m"]>>, %lengths: tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>> {
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>, tensor<?x16x2x8xi8, #relax.dims<["n", 16, 2, 8]>>, tensor<?x16x2x8xi8, #relax.dims<["n", 16, 2, 8]>>, tensor<?x?xi64, #relax.dims<["b", "m"]>>, tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>
  return %0 : tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>
}

// -----

// What keeps pages from being read in place is told.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:    copied = "all sizes are known"
// CHECK-SAME:    rule = "paged"
func.func @known(%query: tensor<1x2x1x8xf32>, %cache: tensor<4x16x2x8xf32>, %table: tensor<1x2xi64>, %lengths: tensor<1xi64>) -> tensor<1x2x1x8xf32> {
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<1x2x1x8xf32>, tensor<4x16x2x8xf32>, tensor<4x16x2x8xf32>, tensor<1x2xi64>, tensor<1xi64>) -> tensor<1x2x1x8xf32>
  return %0 : tensor<1x2x1x8xf32>
}

// -----

// How many rows a page has is known at run time: rows are copied by a function of their own.
// CHECK-LABEL: func.func @open_pages(
// CHECK:         callee = @paged_rows
// CHECK:         rule = "blocked"
func.func @open_pages(%query: tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>, %cache: tensor<?x?x2x8xf32, #relax.dims<["n", "p", 2, 8]>>, %table: tensor<?x?xi64, #relax.dims<["b", "m"]>>, %lengths: tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>> {
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>, tensor<?x?x2x8xf32, #relax.dims<["n", "p", 2, 8]>>, tensor<?x?x2x8xf32, #relax.dims<["n", "p", 2, 8]>>, tensor<?x?xi64, #relax.dims<["b", "m"]>>, tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>
  return %0 : tensor<?x2x1x8xf32, #relax.dims<["b", 2, 1, 8]>>
}
