// RUN: mirlo-opt %s --verify-schedule="fail=never remarks=true" --split-input-file --verify-diagnostics

// Both forms of kernels are run over finite fields, and their results compared.

#map = affine_map<(d0) -> (d0)>
// expected-remark@+1 {{kernel '@equal' is equal to its definition in 2 rounds}}
func.func private @equal(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c20 = arith.constant 20 : index
  scf.for %i = %c0 to %c20 step %c1 {
    %v = memref.load %x[%i] : memref<20xf32>
    %d = arith.addf %v, %v : f32
    %n = arith.negf %d : f32
    %e = "tir.exp"(%n) : (f32) -> f32
    memref.store %e, %y[%i] : memref<20xf32>
  }
  return
}
module attributes {tir.definitions} {
  func.func private @equal(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      %n = arith.negf %v : f32
      %e = "tir.exp"(%n) : (f32) -> f32
      %s = arith.mulf %e, %e : f32
      "tir.yield"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
}

// -----

#map = affine_map<(d0) -> (d0)>
// expected-remark@+1 {{kernel '@one_less' differs from its definition: result 0 differs in 1 of 20 elements, first at [19] (round 0)}}
func.func private @one_less(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c19 = arith.constant 19 : index
  scf.for %i = %c0 to %c19 step %c1 {
    %v = memref.load %x[%i] : memref<20xf32>
    memref.store %v, %y[%i] : memref<20xf32>
  }
  return
}
// expected-remark@+1 {{kernel '@too_far' differs from its definition: it writes outside of a buffer (round 0)}}
func.func private @too_far(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c21 = arith.constant 21 : index
  scf.for %i = %c0 to %c21 step %c1 {
    %v = memref.load %x[%i] : memref<20xf32>
    memref.store %v, %y[%i] : memref<20xf32>
  }
  return
}
// Far from its buffers, a kernel reaches the end of the guards only.
// expected-remark@+1 {{kernel '@far_away' differs from its definition: it writes outside of a buffer (round 0)}}
func.func private @far_away(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c = arith.constant 123456789012345 : index
  %v = memref.load %x[%c] : memref<20xf32>
  memref.store %v, %y[%c] : memref<20xf32>
  return
}
// expected-remark@+1 {{kernel '@overwrites' differs from its definition: it writes an input (round 0)}}
func.func private @overwrites(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c20 = arith.constant 20 : index
  scf.for %i = %c0 to %c20 step %c1 {
    %v = memref.load %x[%i] : memref<20xf32>
    memref.store %v, %y[%i] : memref<20xf32>
    memref.store %v, %x[%c0] : memref<20xf32>
  }
  return
}
// Iterations that write to each other's elements differ backwards.
// expected-remark@+1 {{kernel '@race' differs from its definition: result 0 differs in}}
func.func private @race(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c19 = arith.constant 19 : index
  %c20 = arith.constant 20 : index
  scf.for %i = %c0 to %c20 step %c1 {
    %v = memref.load %x[%i] : memref<20xf32>
    memref.store %v, %y[%i] : memref<20xf32>
    %n = arith.addi %i, %c1 : index
    %k = arith.minsi %n, %c19 : index
    memref.store %v, %y[%k] : memref<20xf32>
    %l = memref.load %x[%c19] : memref<20xf32>
    memref.store %l, %y[%c19] : memref<20xf32>
  } {tir.parallel}
  return
}
// expected-remark@+1 {{kernel '@without_definition' is not compared with its definition: it is written as loops, and no operator is its definition}}
func.func private @without_definition(%x: memref<20xf32>) attributes {tir.prim_func} {
  return
}
module attributes {tir.definitions} {
  func.func private @one_less(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      "tir.yield"(%v) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
  func.func private @too_far(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      "tir.yield"(%v) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
  func.func private @far_away(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      "tir.yield"(%v) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
  func.func private @overwrites(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      "tir.yield"(%v) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
  func.func private @race(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      "tir.yield"(%v) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
}

// -----

#map = affine_map<(d0) -> (d0)>
// expected-remark@+1 {{kernel '@unknown' is not compared with its definition: the operation 'memref.atomic_rmw'}}
func.func private @unknown(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %v = memref.load %x[%c0] : memref<20xf32>
  %old = memref.atomic_rmw addf %v, %y[%c0] : (f32, memref<20xf32>) -> f32
  return
}
module attributes {tir.definitions} {
  func.func private @unknown(%x: tensor<20xf32>) -> tensor<20xf32> attributes {tir.prim_func} {
    %0 = "tir.block"(%x) ({
    ^bb0(%i: index, %v: f32):
      "tir.yield"(%v) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
    }) {axes = ["spatial"], domain = [20], init = [unit], maps = [#map, #map], name = "e", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<20xf32>) -> tensor<20xf32>
    return %0 : tensor<20xf32>
  }
}
