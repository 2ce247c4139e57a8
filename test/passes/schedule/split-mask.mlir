// RUN: echo '{"version": 1, "primitives": [["split", "twice_i", [null, 8]], ["vectorize", "twice_i_1"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// A tail by a mask: each vector computes which of its lanes are elements.
// CHECK-LABEL: func.func private @f(
// CHECK:         scf.for
// CHECK:           %[[MASK:.*]] = vector.create_mask {{.*}} : vector<8xi1>
// CHECK:           %[[X:.*]] = vector.maskedload %arg0[{{.*}}], %[[MASK]],
// CHECK:           %[[Y:.*]] = arith.addf %[[X]], %[[X]] : vector<8xf32>
// CHECK:           vector.maskedstore %arg1[{{.*}}], %[[MASK]], %[[Y]]
func.func private @f(%x: tensor<21xf32>) -> tensor<21xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [21], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<21xf32>) -> tensor<21xf32>
  return %0 : tensor<21xf32>
}
