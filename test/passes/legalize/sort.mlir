// RUN: mirlo-opt %s --split-input-file --legalize=target=c | FileCheck %s

// Loops over buffers: a merge sort, and a heap of the best.

// CHECK-LABEL: func.func @test_sort
// CHECK:       relax.call_tir{{.*}}callee = @sort
// CHECK:       func.func private @sort({{.*}}memref<2x100xf32>, {{.*}}memref<2x100xf32>)
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.while
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.for
func.func @test_sort(%arg0: tensor<2x100xf32>) -> tensor<2x100xf32> {
  %0 = "relax.sort"(%arg0) : (tensor<2x100xf32>) -> tensor<2x100xf32>
  return %0 : tensor<2x100xf32>
}

// -----

// Scratch memory that is too large for the stack is a parameter.
// CHECK-LABEL: func.func @test_argsort
// CHECK:       relax.call_tir{{.*}}callee = @argsort
// CHECK:       func.func private @argsort({{.*}}memref<3000xi32>, {{.*}}memref<3000xi64>, {{.*}}memref<60032xi8>){{.*}}tir.workspace
// CHECK:       memref.view
// CHECK:       memref.view
// CHECK:       memref.view
// CHECK:       scf.for
// CHECK:       scf.while
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.for
func.func @test_argsort(%arg0: tensor<3000xi32>) -> tensor<3000xi64> {
  %0 = "relax.argsort"(%arg0) {descending = true} : (tensor<3000xi32>) -> tensor<3000xi64>
  return %0 : tensor<3000xi64>
}

// -----

// CHECK-LABEL: func.func @test_topk
// CHECK:       relax.call_tir{{.*}}callee = @topk
// CHECK:       func.func private @topk({{.*}}memref<2x100xf32>, {{.*}}memref<2x5xf32>, {{.*}}memref<2x5xi64>)
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.while
// CHECK:       scf.if
// Sixteen elements are compared at once, then one by one if one of them comes before the worst.
// CHECK:       scf.for
// CHECK-COUNT-16: arith.cmpf ole
// CHECK:       scf.if
// CHECK:       scf.for
// CHECK:       scf.if
// CHECK:       scf.while
// CHECK:       scf.if
// CHECK:       scf.for
// CHECK:       scf.while
// CHECK:       scf.if
func.func @test_topk(%arg0: tensor<2x100xf32>) -> (tensor<2x5xf32>, tensor<2x5xi64>) {
  %0:2 = "relax.topk"(%arg0) {k = 5 : i64} : (tensor<2x100xf32>) -> (tensor<2x5xf32>, tensor<2x5xi64>)
  return %0#0, %0#1 : tensor<2x5xf32>, tensor<2x5xi64>
}
