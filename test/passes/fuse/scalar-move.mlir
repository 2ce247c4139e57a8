// RUN: mirlo-opt %s --legalize --annotate-kinds --fuse-ops | FileCheck %s

// A prim function that only moves a scalar is none that moves rows.
// CHECK-LABEL: func.func @scalars
// CHECK:       return
func.func @scalars(%x: tensor<1xi64>, %y: tensor<i64>) -> tensor<i64> {
  %0 = "relax.squeeze"(%x) {axes = array<i64: 0>} : (tensor<1xi64>) -> tensor<i64>
  %1 = "relax.expand"(%y) {shape = []} : (tensor<i64>) -> tensor<i64>
  %2 = "relax.strided_slice"(%0) {axes = array<i64>, begin = array<i64>, end = array<i64>, strides = array<i64>} : (tensor<i64>) -> tensor<i64>
  %3 = "relax.add"(%1, %2) : (tensor<i64>, tensor<i64>) -> tensor<i64>
  return %3 : tensor<i64>
}
