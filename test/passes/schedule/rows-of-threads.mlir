// RUN: echo '{"version": 1, "primitives": [["merge", "halves_i", "total_i", "result_i"], ["split", "halves_j", [null, 32]], ["split", "total_j", [null, 32]], ["split", "result_j", [null, 32]], ["reorder", "halves_j_1", "halves_j_0"], ["reorder", "total_j_1", "total_j_0"], ["reorder", "result_j_1", "result_j_0"], ["unroll", "halves_j_0"], ["unroll", "total_j_0"], ["unroll", "result_j_0"], ["bind", "halves_j_1", "threadIdx.x"], ["bind", "total_j_1", "threadIdx.x"], ["bind", "result_j_1", "threadIdx.x"], ["accumulate", "total", "total_j_1", {"in_order": true}], ["bind", "halves_i", "blockIdx.x"], ["clamp", "halves"], ["clamp", "total"], ["clamp", "result"]]}' > %t.json
// RUN: mirlo-opt %s --schedule="target=nvvm given=f=%t.json" | FileCheck %s

// Loops over threads that follow one another are one. Each thread loads its two elements, the last one where a row has no more of them, adds up what
// is in the row, and keeps halves in registers until all threads have the total.
// CHECK-LABEL: func.func private @f(
// CHECK:         %[[RESULT:.*]] = memref.collapse_shape %arg1
// CHECK-NOT:     memref.alloc
// CHECK:         "tir.for"
// CHECK:           "tir.for"
// CHECK-COUNT-2:     memref.load
// CHECK-NOT:         memref.load
// CHECK:             arith.select
// CHECK:             "tir.reduce_threads"
// CHECK-NOT:         memref.load
// CHECK:             memref.store {{.*}}, %[[RESULT]]
// CHECK:             scf.if
// CHECK:               memref.store {{.*}}, %[[RESULT]]
// CHECK:           }) {{.*}}thread = "threadIdx.x"
// CHECK-NOT:       thread = "threadIdx.x"
// CHECK:         }) {{.*}}thread = "blockIdx.x"
func.func private @f(%x: tensor<6x40xf32>) -> tensor<6x40xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %half = arith.constant 0.5 : f32
    %3 = arith.mulf %a, %half : f32
    "tir.yield"(%3) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [6, 40], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "halves", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6x40xf32>) -> tensor<6x40xf32>
  %1 = "tir.block"(%0) ({
  ^bb0(%i: index, %j: index, %a: f32, %total: f32):
    %3 = arith.addf %total, %a : f32
    "tir.yield"(%3) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [6, 40], init = [0.0 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "total", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6x40xf32>) -> tensor<6xf32>
  %2 = "tir.block"(%0, %1) ({
  ^bb0(%i: index, %j: index, %a: f32, %total: f32):
    %3 = arith.subf %a, %total : f32
    "tir.yield"(%3) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [6, 40], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], name = "result", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6x40xf32>, tensor<6xf32>) -> tensor<6x40xf32>
  return %2 : tensor<6x40xf32>
}
