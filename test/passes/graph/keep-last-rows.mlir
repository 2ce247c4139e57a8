// RUN: mirlo-opt %s --keep-last-rows=output=logits | FileCheck %s
// RUN: mirlo-opt %s --keep-last-rows=output=scores 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: there is no output 'scores': the outputs are hidden, logits
// NAME-NOT: last_rows
// RUN: mirlo-opt %s --keep-last-rows=output=packed | FileCheck %s --check-prefix=PACKED
// RUN: mirlo-opt %s --keep-last-rows=output=ends | FileCheck %s --check-prefix=ENDS
// ENDS-NOT: last_rows

// The slice comes before the product, through what follows it; what other results need stays whole.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>> {relax.name = "x"}
// CHECK-SAME:    tensor<?xi8, #relax.dims<["last_rows"]>> {relax.name = "last_rows"}
// CHECK-SAME:    tensor<?x?x32xf32, #relax.dims<["b", "min(last_rows, s)", 32]>> {relax.name = "logits"}
// CHECK:         %[[HIDDEN:.*]] = "relax.relu"(%arg0)
// CHECK:         %[[LAST:.*]] = "relax.slice_dims"(%[[HIDDEN]])
// CHECK:         %[[MADE:.*]] = "relax.matmul"(%[[LAST]], %arg1)
// CHECK:         %[[SUM:.*]] = "relax.add"(%[[MADE]], %arg2)
// CHECK:         %[[TANH:.*]] = "relax.tanh"(%[[SUM]])
// CHECK-NOT:     relax.matmul
// CHECK:         return %[[HIDDEN]], %[[TANH]]
func.func @main(
    %x: tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>> {relax.name = "x"}, %w: tensor<8x32xf32> {relax.name = "w"},
    %bias: tensor<32xf32> {relax.name = "bias"})
    -> (tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>> {relax.name = "hidden"},
        tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>> {relax.name = "logits"}) {
  %0 = "relax.relu"(%x) : (tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>>) -> tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>>
  %1 = "relax.matmul"(%0, %w) : (tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>>, tensor<8x32xf32>) -> tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>>
  %2 = "relax.add"(%1, %bias) : (tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>>, tensor<32xf32>) -> tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>>
  %3 = "relax.tanh"(%2) : (tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>>) -> tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>>
  return %0, %3 : tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>>, tensor<?x?x32xf32, #relax.dims<["b", "s", 32]>>
}

// Packed sequences: rows by their numbers. An output with a row for each sequence stays as it is.
// PACKED-LABEL: func.func @paged(
// PACKED-SAME:    tensor<?xi64, #relax.dims<["last_rows"]>> {relax.name = "last_rows"}
// PACKED-SAME:    tensor<?x32xf32, #relax.dims<["last_rows", 32]>> {relax.name = "packed"}
// PACKED:         %[[ROWS:.*]] = "relax.gather"(%arg0, %arg3)
// PACKED:         "relax.matmul"(%[[ROWS]], %arg1)
func.func @paged(
    %x: tensor<?x8xf32, #relax.dims<["t", 8]>> {relax.name = "x"}, %w: tensor<8x32xf32> {relax.name = "w"},
    %past: tensor<?xi32, #relax.dims<["b"]>> {relax.name = "past", relax.pages = "past"})
    -> (tensor<?x32xf32, #relax.dims<["t", 32]>> {relax.name = "packed"},
        tensor<?x8xf32, #relax.dims<["b", 8]>> {relax.name = "ends"}) {
  %0 = "relax.matmul"(%x, %w) : (tensor<?x8xf32, #relax.dims<["t", 8]>>, tensor<8x32xf32>) -> tensor<?x32xf32, #relax.dims<["t", 32]>>
  %1 = "relax.gather"(%x, %past) : (tensor<?x8xf32, #relax.dims<["t", 8]>>, tensor<?xi32, #relax.dims<["b"]>>) -> tensor<?x8xf32, #relax.dims<["b", 8]>>
  return %0, %1 : tensor<?x32xf32, #relax.dims<["t", 32]>>, tensor<?x8xf32, #relax.dims<["b", 8]>>
}
