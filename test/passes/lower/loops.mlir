// RUN: mirlo-opt %s --lower-loops | FileCheck %s

// A nest written by hand: kinds of loops, a block over buffers, a call of a C function.

// CHECK: func.func private @device_add(memref<8xf32>, index)

// CHECK-LABEL: func.func @nest
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:           scf.for
// CHECK:             memref.store
// CHECK:         } {tir.parallel}
// CHECK:         scf.for
// CHECK:           scf.for {{.*}} iter_args
// CHECK:             arith.mulf
// CHECK:           memref.store
// CHECK:         call @device_add(%{{.*}}, %{{.*}}) : (memref<8xf32>, index) -> ()
// CHECK-NOT:     tir.for
func.func @nest(%x: memref<8x4xf32>, %y: memref<8xf32>) attributes {tir.prim_func} {
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  %four = arith.constant 4 : index
  "tir.for"(%zero, %eight) ({
  ^bb0(%i: index):
    "tir.for"(%zero, %four) ({
    ^bb0(%j: index):
      %0 = memref.load %x[%i, %j] : memref<8x4xf32>
      memref.store %0, %x[%i, %j] : memref<8x4xf32>
      "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
    }) {kind = "vectorized"} : (index, index) -> ()
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "parallel"} : (index, index) -> ()
  "tir.block"(%x, %y) ({
  ^bb0(%i: index, %k: index, %a: f32, %acc: f32):
    %1 = arith.mulf %a, %a : f32
    %2 = arith.addf %acc, %1 : f32
    "tir.yield"(%2) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {name = "norm", axes = ["spatial", "reduce"], domain = [8, 4], init = [0.0 : f32],
      maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>],
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8x4xf32>, memref<8xf32>) -> ()
  "tir.call_extern"(%y, %eight) {function = "device_add",
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8xf32>, index) -> ()
  return
}

// An unrolled loop is repeated.
// CHECK-LABEL: func.func @unrolled
// CHECK-COUNT-3: memref.store
// CHECK-NOT:     memref.store
func.func @unrolled(%y: memref<3xf32>) attributes {tir.prim_func} {
  %zero = arith.constant 0 : index
  %three = arith.constant 3 : index
  %one = arith.constant 1.0 : f32
  "tir.for"(%zero, %three) ({
  ^bb0(%i: index):
    memref.store %one, %y[%i] : memref<3xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "unrolled"} : (index, index) -> ()
  return
}
