// RUN: echo '{"version": 1, "primitives": [["vectorize", "twice_i"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// Elements that are not next to each other are gathered.
// CHECK-LABEL: func.func private @f(
// CHECK:         %[[AT:.*]] = arith.constant dense<[0, -1, -2, -3, -4, -5, -6, -7]> : vector<8xindex>
// CHECK:         vector.gather %arg0
// CHECK:         vector.store
func.func private @f(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [8], init = [unit], maps = [affine_map<(d0) -> (d0 * -1 + 7)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
