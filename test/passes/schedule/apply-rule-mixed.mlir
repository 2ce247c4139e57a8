// RUN: echo '{"version": 1, "primitives": [["apply_rule", "rows", ["total"]], ["parallel", "twice_i"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// A rule for one block, and a word for the loop of the other.
// CHECK-LABEL: func.func private @f(
// CHECK-SAME:    tir.parts = [{blocks = ["total"], choices = {{.*}}, rule = "rows"}, {blocks = ["twice"], choices = {}, rule = "schedule"}]
// CHECK:         vector.reduction <add>
// CHECK:         scf.for
// CHECK:         } {tir.parallel}
func.func private @f(%x: tensor<6x40xf32>) -> tensor<6xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32, %total: f32):
    %1 = arith.addf %total, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [6, 40], init = [1.0 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "total", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6x40xf32>) -> tensor<6xf32>
  %2 = "tir.block"(%0) ({
  ^bb0(%i: index, %a: f32):
    %3 = arith.addf %a, %a : f32
    "tir.yield"(%3) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [6], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6xf32>) -> tensor<6xf32>
  return %2 : tensor<6xf32>
}
