// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule="target=default" --plan-memory --verify-calls --split-input-file | FileCheck %s

// The values of symbols come from the call record; a function of sizes tells how large the arena is, and kernels are
// given the symbols that they need.

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[X:.*]]: memref<281474976710656xf32> {relax.name = "x"
// CHECK-SAME:    memref<{{.*}}xi64> {relax.record}
// CHECK-SAME:    relax.sizes = ["{{.*}}"], relax.symbols = ["batch"]
// CHECK:         memref.load
// CHECK:         %[[BATCH:.*]] = arith.index_cast
// CHECK:         call @exp({{.*}}, %[[BATCH]])
// CHECK:         call @relu({{.*}}, %[[BATCH]])
// CHECK-LABEL: func.func @main_sizes(
// CHECK:         memref.store
// CHECK-LABEL: func.func private @exp(
// CHECK-SAME:    tir.symbols = ["batch"]
func.func @main(%x: tensor<?x8xf32, #relax.dims<["batch", 8]>> {relax.name = "x"}) -> (tensor<?x8xf32, #relax.dims<["batch", 8]>> {relax.name = "y"}) {
  %0 = "relax.exp"(%x) : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x8xf32, #relax.dims<["batch", 8]>>
  %1 = "relax.relu"(%0) : (tensor<?x8xf32, #relax.dims<["batch", 8]>>) -> tensor<?x8xf32, #relax.dims<["batch", 8]>>
  return %1 : tensor<?x8xf32, #relax.dims<["batch", 8]>>
}

// -----

// Dims determine symbols in any order: `a` is known from the second dim, `b` from the first one then.

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    relax.symbols = ["a + b", "2*a"]
// CHECK:         %[[A:.*]] = arith.floordivsi
// CHECK:         arith.subi %{{.*}}, %[[A]]
func.func @main(%x: tensor<?x?xf32, #relax.dims<["a + b", "2*a"]>> {relax.name = "x"}) -> (tensor<?xf32, #relax.dims<["b"]>> {relax.name = "y"}) {
  %0 = "relax.full"() {shape = ["b"], value = 2.0, dtype = f32} : () -> tensor<?xf32, #relax.dims<["b"]>>
  return %0 : tensor<?xf32, #relax.dims<["b"]>>
}

// -----

// A size that data tells: the count is checked, and memory for the output asked of the run time. Until the size is
// known, what is computed of it waits.

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    relax.checks = [{{.*}}f32[n] is larger than any memory", "how many"], {{.*}}relax.late = ["n"]
// CHECK:         %[[N:.*]] = arith.index_cast
// CHECK:         call @mirlo_check({{.*}}, %[[N]],
// CHECK:         %[[MEMORY:.*]] = call @mirlo_allocate(
// CHECK:         %[[Y:.*]] = memref.view %[[MEMORY]]
// CHECK:         call @full(%[[Y]], %[[N]])
func.func @main(%count: tensor<1xi64> {relax.name = "count"}) -> (tensor<?xf32, #relax.dims<["n"]>> {relax.name = "y"}) {
  "relax.bind_dims"(%count) {symbols = ["n"], what = "how many"} : (tensor<1xi64>) -> ()
  %0 = "relax.full"() {shape = ["n"], value = 2.0, dtype = f32} : () -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}

// -----

// Requirements on dims: of inputs, before the call; of data, where they are bound.

// CHECK:         relax.checks = ["at most m", {{.*}}"not too many"{{.*}}relax.shown = ["m n", 
// CHECK:         %[[K:.*]] = arith.index_cast
// CHECK:         call @mirlo_check({{.*}}, %[[K]],
func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>> {relax.name = "x"}, %y: tensor<?xf32, #relax.dims<["m"]>> {relax.name = "y"}, %count: tensor<1xi64> {relax.name = "count"}) -> (tensor<?xf32, #relax.dims<["n"]>> {relax.name = "z"}) {
  "relax.require_dims"() {dims = ["n"], bounds = ["m"], what = "at most m"} : () -> ()
  "relax.bind_dims"(%count) {symbols = ["k"], what = "how many"} : (tensor<1xi64>) -> ()
  "relax.require_dims"() {dims = ["k"], bounds = ["n"], what = "not too many"} : () -> ()
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}

// -----

// A reshape that only run time can find to be wrong is checked before the call.

// CHECK:         relax.checks = ["relax.reshape: a tensor of n elements is looked at as one of 6; the first"
func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>> {relax.name = "x"}) -> (tensor<2x3xf32> {relax.name = "y"}) {
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  %1 = "relax.reshape"(%0) {shape = [2, 3]} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
