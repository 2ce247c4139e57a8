// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule --plan-memory --split-input-file | FileCheck %s

// A row is written where the loop carries them all: the function that is called there does not copy them first.
// CHECK-LABEL: func.func private @scatter_nd.in_place(
// CHECK-NOT:     memref.copy
// CHECK:       func.func @rows(
// CHECK:         scf.for
// CHECK-NEXT:      func.call @scatter_nd.in_place(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK-NEXT:    }
// CHECK:       func.func private @scatter_nd(
// CHECK:         memref.copy {{.*}} {tir.start}
func.func @rows(%x: tensor<1x4xf32>, %place: tensor<1x1xi64>, %n: tensor<i64>) -> tensor<8x4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = tensor.extract %n[] : tensor<i64>
  %end = arith.index_cast %count : i64 to index
  %start = "relax.full"() {shape = [8, 4], value = 0.0 : f64, dtype = f32} : () -> tensor<8x4xf32>
  %0 = scf.for %i = %zero to %end step %one iter_args(%rows = %start) -> tensor<8x4xf32> {
    %1 = "relax.scatter_nd"(%rows, %place, %x) : (tensor<8x4xf32>, tensor<1x1xi64>, tensor<1x4xf32>) -> tensor<8x4xf32>
    scf.yield %1 : tensor<8x4xf32>
  }
  return %0 : tensor<8x4xf32>
}

// -----

// What is read later is copied.
// CHECK-LABEL: func.func @both(
// CHECK:         call @scatter_nd(
// CHECK-NOT:   in_place
func.func @both(%x: tensor<8x4xf32>, %place: tensor<1x1xi64>, %row: tensor<1x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = "relax.scatter_nd"(%0, %place, %row) : (tensor<8x4xf32>, tensor<1x1xi64>, tensor<1x4xf32>) -> tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}
