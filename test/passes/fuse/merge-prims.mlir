// RUN: mirlo-opt %s --legalize --merge-prims --split-input-file | FileCheck %s

// Functions that differ in the name of a size that data determine become one; calls say which size it is. A function
// with another computation, and one of a dim of an input, stay.
// CHECK-LABEL: func.func @merged(
// CHECK:         "relax.call_tir"(%arg0) {callee = @slice_dims, {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
// CHECK:         "relax.call_tir"(%{{.*}}) {callee = @exp, {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
// CHECK:         %[[B:.*]] = "relax.call_tir"(%arg0) {callee = @slice_dims, {{.*}}, sizes = ["b"], symbols = ["a"]}
// CHECK-NEXT:    "relax.call_tir"(%[[B]]) {callee = @exp, {{.*}}, sizes = ["b"], symbols = ["a"]}
// CHECK-NEXT:    "relax.call_tir"(%[[B]]) {callee = @tanh, {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
// CHECK-NEXT:    "relax.call_tir"(%arg0) {callee = @exp_[[N:[0-9]+]], {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
// CHECK:       func.func private @slice_dims(
// CHECK:       func.func private @exp(
// CHECK:       func.func private @tanh(
// CHECK:       func.func private @exp_[[N]](
// CHECK-NOT:   func.func
func.func @merged(%x: tensor<?xf32, #relax.dims<["n"]>>, %counts: tensor<2xi64>)
    -> (tensor<?xf32, #relax.dims<["a"]>>, tensor<?xf32, #relax.dims<["b"]>>, tensor<?xf32, #relax.dims<["b"]>>, tensor<?xf32, #relax.dims<["n"]>>) {
  "relax.bind_dims"(%counts) {symbols = ["a", "b"], bounds = ["n", "n"]} : (tensor<2xi64>) -> ()
  %0 = "relax.slice_dims"(%x) {begin = [0], shape = ["a"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["a"]>>
  %1 = "relax.exp"(%0) : (tensor<?xf32, #relax.dims<["a"]>>) -> tensor<?xf32, #relax.dims<["a"]>>
  %2 = "relax.slice_dims"(%x) {begin = [0], shape = ["b"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["b"]>>
  %3 = "relax.exp"(%2) : (tensor<?xf32, #relax.dims<["b"]>>) -> tensor<?xf32, #relax.dims<["b"]>>
  %4 = "relax.tanh"(%2) : (tensor<?xf32, #relax.dims<["b"]>>) -> tensor<?xf32, #relax.dims<["b"]>>
  %5 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %1, %3, %4, %5 : tensor<?xf32, #relax.dims<["a"]>>, tensor<?xf32, #relax.dims<["b"]>>, tensor<?xf32, #relax.dims<["b"]>>, tensor<?xf32, #relax.dims<["n"]>>
}

// -----

// Symbols are matched in the order of the text: swapped ones are swapped in the call, and two that are one in the other
// function make another function.
// CHECK-LABEL: func.func @swapped(
// CHECK:         "relax.call_tir"(%arg0) {callee = @slice_dims, {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
// CHECK:         "relax.call_tir"(%arg0) {callee = @slice_dims, {{.*}}, sizes = ["b", "a"], symbols = ["a", "b"]}
// CHECK:         "relax.call_tir"(%arg0) {callee = @slice_dims_{{.*}}, {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
func.func @swapped(%x: tensor<?xf32, #relax.dims<["n"]>>, %counts: tensor<2xi64>)
    -> (tensor<?xf32, #relax.dims<["a"]>>, tensor<?xf32, #relax.dims<["b"]>>, tensor<?xf32, #relax.dims<["a"]>>) {
  "relax.bind_dims"(%counts) {symbols = ["a", "b"], bounds = ["n", "n"]} : (tensor<2xi64>) -> ()
  %0 = "relax.slice_dims"(%x) {begin = ["b"], shape = ["a"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["a"]>>
  %1 = "relax.slice_dims"(%x) {begin = ["a"], shape = ["b"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["b"]>>
  %2 = "relax.slice_dims"(%x) {begin = ["a"], shape = ["a"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["a"]>>
  return %0, %1, %2 : tensor<?xf32, #relax.dims<["a"]>>, tensor<?xf32, #relax.dims<["b"]>>, tensor<?xf32, #relax.dims<["a"]>>
}

// -----

// Without sizes from data, and without functions, nothing changes.
// CHECK-LABEL: func.func @no_sizes_from_data(
// CHECK:         callee = @exp,
// CHECK:         callee = @exp_
func.func @no_sizes_from_data(%x: tensor<?xf32, #relax.dims<["n"]>>, %y: tensor<?xf32, #relax.dims<["m"]>>)
    -> (tensor<?xf32, #relax.dims<["n"]>>, tensor<?xf32, #relax.dims<["m"]>>) {
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  %1 = "relax.exp"(%y) : (tensor<?xf32, #relax.dims<["m"]>>) -> tensor<?xf32, #relax.dims<["m"]>>
  return %0, %1 : tensor<?xf32, #relax.dims<["n"]>>, tensor<?xf32, #relax.dims<["m"]>>
}

// -----

// CHECK-LABEL: func.func @no_functions(
// CHECK-NEXT:    "relax.bind_dims"
// CHECK-NEXT:    return
func.func @no_functions(%counts: tensor<1xi64>) {
  "relax.bind_dims"(%counts) {symbols = ["a"], bounds = [5]} : (tensor<1xi64>) -> ()
  return
}

// -----

// Names may have dots.
// CHECK-LABEL: func.func @dots(
// CHECK:         callee = @exp, {{.*}}resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
// CHECK:         callee = @exp, {{.*}}, sizes = ["y.s2"], symbols = ["y.s1"]}
func.func @dots(%x: tensor<?xf32, #relax.dims<["n"]>>, %counts: tensor<2xi64>)
    -> (tensor<?xf32, #relax.dims<["y.s1"]>>, tensor<?xf32, #relax.dims<["y.s2"]>>) {
  "relax.bind_dims"(%counts) {symbols = ["y.s1", "y.s2"], bounds = ["n", "n"]} : (tensor<2xi64>) -> ()
  %0 = "relax.slice_dims"(%x) {begin = [0], shape = ["y.s1"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["y.s1"]>>
  %1 = "relax.exp"(%0) : (tensor<?xf32, #relax.dims<["y.s1"]>>) -> tensor<?xf32, #relax.dims<["y.s1"]>>
  %2 = "relax.slice_dims"(%x) {begin = [0], shape = ["y.s2"], strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["y.s2"]>>
  %3 = "relax.exp"(%2) : (tensor<?xf32, #relax.dims<["y.s2"]>>) -> tensor<?xf32, #relax.dims<["y.s2"]>>
  return %1, %3 : tensor<?xf32, #relax.dims<["y.s1"]>>, tensor<?xf32, #relax.dims<["y.s2"]>>
}

// -----

// A symbol may be named like an operation, or like a word of an attribute: these are not compared as sizes.
// CHECK-LABEL: func.func @names_of_operations(
// CHECK:         callee = @sqrt,
// CHECK:         callee = @tanh,
func.func @names_of_operations(%x: tensor<?xf32, #relax.dims<["tir.sqrt"]>>, %y: tensor<?xf32, #relax.dims<["tir.tanh"]>>, %counts: tensor<2xi64>)
    -> (tensor<?xf32, #relax.dims<["tir.sqrt"]>>, tensor<?xf32, #relax.dims<["tir.tanh"]>>) {
  "relax.bind_dims"(%counts) {symbols = ["tir.sqrt", "tir.tanh"], bounds = [9, 9]} : (tensor<2xi64>) -> ()
  %0 = "relax.call_tir"(%x) {callee = @sqrt, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["tir.sqrt"]>>) -> tensor<?xf32, #relax.dims<["tir.sqrt"]>>
  %1 = "relax.call_tir"(%y) {callee = @tanh, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["tir.tanh"]>>) -> tensor<?xf32, #relax.dims<["tir.tanh"]>>
  return %0, %1 : tensor<?xf32, #relax.dims<["tir.sqrt"]>>, tensor<?xf32, #relax.dims<["tir.tanh"]>>
}
func.func private @sqrt(%arg0: tensor<?xf32, #relax.dims<["tir.sqrt"]>>) -> tensor<?xf32, #relax.dims<["tir.sqrt"]>> attributes {tir.prim_func} {
  %0 = "tir.block"(%arg0) ({
  ^bb0(%i: index, %a: f32):
    %1 = "tir.sqrt"(%a) : (f32) -> f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = ["tir.sqrt"], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["tir.sqrt"]>>) -> tensor<?xf32, #relax.dims<["tir.sqrt"]>>
  return %0 : tensor<?xf32, #relax.dims<["tir.sqrt"]>>
}
func.func private @tanh(%arg0: tensor<?xf32, #relax.dims<["tir.tanh"]>>) -> tensor<?xf32, #relax.dims<["tir.tanh"]>> attributes {tir.prim_func} {
  %0 = "tir.block"(%arg0) ({
  ^bb0(%i: index, %a: f32):
    %1 = "tir.tanh"(%a) : (f32) -> f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = ["tir.tanh"], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["tir.tanh"]>>) -> tensor<?xf32, #relax.dims<["tir.tanh"]>>
  return %0 : tensor<?xf32, #relax.dims<["tir.tanh"]>>
}
