// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule="target=default" --plan-memory | FileCheck %s

// A tensor that grows has a slot: two words for its memory, a word for its size. Each iteration computes in a slot of its
// own, makes room in the other one and copies.

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    relax.checks = [{{.*}}is larger than any memory
// CHECK-DAG:     %[[MEMORY:.*]] = memref.alloca() : memref<2xi64>
// CHECK-DAG:     %[[SIZE:.*]] = memref.alloca() : memref<1xi64>
// CHECK:         call @mirlo_grow({{.*}}, %[[MEMORY]], %{{.*}})
// CHECK:         memref.store %{{.*}}, %[[SIZE]]
// CHECK:         scf.while
// CHECK:         do {
// CHECK:           memref.load %[[SIZE]]
// CHECK:           call @mirlo_check(
// CHECK:           call @mirlo_slot(%[[MEMORY]])
// CHECK:           call @mirlo_grow(
// CHECK:           call @pad
// CHECK:           call @mirlo_grow({{.*}}, %[[MEMORY]], %{{.*}})
// CHECK:           memref.store %{{.*}}, %[[SIZE]]
// CHECK:         %[[N:.*]] = arith.index_cast
// CHECK:         call @mirlo_allocate(
func.func @main(%x: tensor<4xf32> {relax.name = "x"}, %go: tensor<i1> {relax.name = "go"})
    -> (tensor<?xf32, #relax.dims<["m"]>> {relax.name = "y"}) {
  %start = "relax.erase_dims"(%x) {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<?xf32>
  %all = scf.while (%v = %start) : (tensor<?xf32>) -> tensor<?xf32> {
    %more = tensor.extract %go[] : tensor<i1>
    scf.condition(%more) %v : tensor<?xf32>
  } do {
  ^bb0(%w: tensor<?xf32>):
    %rows = "relax.match_dims"(%w) {symbols = ["n"]} : (tensor<?xf32>) -> tensor<?xf32, #relax.dims<["n"]>>
    %longer = "relax.pad"(%rows) {pads = array<i64: 0, 4>} : (tensor<?xf32, #relax.dims<["n"]>>)
      -> tensor<?xf32, #relax.dims<["n + 4"]>>
    %next = "relax.erase_dims"(%longer) {axes = array<i64: 0>} : (tensor<?xf32, #relax.dims<["n + 4"]>>) -> tensor<?xf32>
    scf.yield %next : tensor<?xf32>
  }
  %0 = "relax.match_dims"(%all) {symbols = ["m"]} : (tensor<?xf32>) -> tensor<?xf32, #relax.dims<["m"]>>
  return %0 : tensor<?xf32, #relax.dims<["m"]>>
}
