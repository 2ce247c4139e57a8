// RUN: echo '{"version": 1, "primitives": [["split", "twice_i", [null, 8], {"tail": "peel"}], ["vectorize", "twice_i_1"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// A peeled tail: the two complete vectors without a mask, then one of five elements.
// CHECK-LABEL: func.func private @f(
// CHECK-SAME:    primitives = "s.split('twice_i', [None, 8], tail='peel'); s.vectorize('twice_i_1')"
// CHECK:         scf.for
// CHECK-NOT:       vector.create_mask
// CHECK:           vector.load %arg0
// CHECK:           vector.store {{.*}}, %arg1
// CHECK:         }
// CHECK:         vector.constant_mask [5] : vector<8xi1>
// CHECK:         vector.maskedload %arg0
// CHECK:         vector.maskedstore %arg1
// CHECK-NOT:     scf.for
func.func private @f(%x: tensor<21xf32>) -> tensor<21xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [21], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<21xf32>) -> tensor<21xf32>
  return %0 : tensor<21xf32>
}
