// RUN: echo '{"version": 1, "primitives": [["parallel", "second_i"]]}' > %t.json
// RUN: mirlo-opt %s --schedule="target=gpu given=f=%t.json" > %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: mirlo-opt %t.mlir --map-threads | FileCheck %s --check-prefix=MAPPED
// RUN: echo '{"version": 1, "primitives": [["split", "second_i", [null, 4]], ["vectorize", "second_i_1"]]}' > %t.bad.json
// RUN: not mirlo-opt %s --schedule="target=gpu given=f=%t.bad.json" 2>&1 | FileCheck %s --check-prefix=ERROR

// The block without words has a rule of the target; the iterations of a parallel loop are threads.
// CHECK-LABEL: func.func private @f(
// CHECK-SAME:    tir.parts = [{blocks = ["first"], choices = {runs = 1 : i64, width = 1 : i64}, rule = "stages"}, {blocks = ["second"], choices = {}, rule = "schedule"}]
// CHECK-SAME:    stages = "points, schedule"
// CHECK:         "tir.for"(%{{.*}}, %c8
// CHECK:         "tir.for"(%{{.*}}, %c128
// CHECK:         thread = "threadIdx.x"
// CHECK:         thread = "blockIdx.x"
// CHECK:         "tir.for"(%{{.*}}, %c8
// CHECK:         "tir.for"(%{{.*}}, %c128
// CHECK:         thread = "threadIdx.x"
// CHECK:         thread = "blockIdx.x"
// MAPPED-COUNT-2: gpu.launch blocks({{.*}}) in ({{.*}} = %c8
// MAPPED-NOT:    gpu.launch
// ERROR: bind: no loop of 'second' is bound to an axis of target 'gpu', and one thread would run all iterations of 'second_i_0'
func.func private @f(%x: tensor<1000xf32>) -> tensor<1000xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [1000], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      name = "first", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<1000xf32>) -> tensor<1000xf32>
  %2 = "tir.block"(%0) ({
  ^bb0(%i: index, %a: f32):
    %3 = arith.mulf %a, %a : f32
    "tir.yield"(%3) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [1000], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      name = "second", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<1000xf32>) -> tensor<1000xf32>
  return %2 : tensor<1000xf32>
}
