// RUN: mirlo-opt %s --require-dims | FileCheck %s

// What an operator requires of run-time sizes is checked in front of it, once.
// CHECK-LABEL: func.func @scatter
// CHECK-NEXT:    "relax.require_dims"() {bounds = [2], dims = ["n"], what = "{{.*}}dim 0 of indices i64[n, m] must not exceed that of the operand f32[2, 3]"}
// CHECK-NEXT:    "relax.scatter_elements"
// CHECK-NEXT:    "relax.scatter_elements"
func.func @scatter(%x: tensor<2x3xf32>, %i: tensor<?x?xi64, #relax.dims<["n", "m"]>>,
    %u: tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<2x3xf32> {
  %0 = "relax.scatter_elements"(%x, %i, %u) {axis = 1} : (tensor<2x3xf32>, tensor<?x?xi64, #relax.dims<["n", "m"]>>,
      tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<2x3xf32>
  %1 = "relax.scatter_elements"(%0, %i, %u) {axis = 1} : (tensor<2x3xf32>, tensor<?x?xi64, #relax.dims<["n", "m"]>>,
      tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// A dim of an attribute is one, too: the begin of a slice, where operand and result have numbers alone.
// CHECK-LABEL: func.func @begin
// CHECK-COUNT-2: "relax.require_dims"
// CHECK:         "relax.slice_dims"
func.func @begin(%n: tensor<1xi64>, %x: tensor<5xf32>) -> tensor<1xf32> {
  "relax.bind_dims"(%n) {bounds = ["?"], symbols = ["k"], what = "a position"} : (tensor<1xi64>) -> ()
  %0 = "relax.slice_dims"(%x) {begin = ["k - 2"], shape = [1], strides = array<i64: 1>} : (tensor<5xf32>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
}

// An axis that is known to have elements, or an empty result, needs no check.
// CHECK-LABEL: func.func @decided
// CHECK-NOT:     relax.require_dims
func.func @decided(%x: tensor<?xf32, #relax.dims<["n + 1"]>>, %i: tensor<?xi64, #relax.dims<["m"]>>)
    -> tensor<?xf32, #relax.dims<["m"]>> {
  %0 = "relax.gather"(%x, %i) : (tensor<?xf32, #relax.dims<["n + 1"]>>, tensor<?xi64, #relax.dims<["m"]>>)
    -> tensor<?xf32, #relax.dims<["m"]>>
  return %0 : tensor<?xf32, #relax.dims<["m"]>>
}

// In a branch, only where it is taken; what is checked before is not checked in it.
// CHECK-LABEL: func.func @branch
// CHECK:         scf.if
// CHECK-NEXT:      "relax.require_dims"() {bounds = ["n"], dims = ["min(1, m)"], what = "{{.*}}axis 0 of the operand f32[n], which i64[m] indexes, is empty"}
// CHECK-NEXT:      "relax.gather"
// CHECK-NOT:       relax.require_dims
func.func @branch(%c: i1, %z: tensor<f32>, %x: tensor<?xf32, #relax.dims<["n"]>>, %i: tensor<?xi64, #relax.dims<["m"]>>)
    -> tensor<?xf32, #relax.dims<["m"]>> {
  %0 = scf.if %c -> tensor<?xf32, #relax.dims<["m"]>> {
    %1 = "relax.gather"(%x, %i) : (tensor<?xf32, #relax.dims<["n"]>>, tensor<?xi64, #relax.dims<["m"]>>)
      -> tensor<?xf32, #relax.dims<["m"]>>
    %2 = "relax.gather"(%x, %i) : (tensor<?xf32, #relax.dims<["n"]>>, tensor<?xi64, #relax.dims<["m"]>>)
      -> tensor<?xf32, #relax.dims<["m"]>>
    %3 = "relax.add"(%1, %2) : (tensor<?xf32, #relax.dims<["m"]>>, tensor<?xf32, #relax.dims<["m"]>>)
      -> tensor<?xf32, #relax.dims<["m"]>>
    scf.yield %3 : tensor<?xf32, #relax.dims<["m"]>>
  } else {
    %1 = "relax.steps"(%z, %z) {shape = ["m"]} : (tensor<f32>, tensor<f32>) -> tensor<?xf32, #relax.dims<["m"]>>
    scf.yield %1 : tensor<?xf32, #relax.dims<["m"]>>
  }
  return %0 : tensor<?xf32, #relax.dims<["m"]>>
}
