// RUN: echo '{"version": 1, "primitives": [["split", "twice_i", [null, 4]], ["vectorize", "twice_i_1"], ["parallel", "twice_i_0"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s
// RUN: echo '{"version": 1, "primitives": [["unroll", "nothing"]]}' > %t.bad.json
// RUN: not mirlo-opt %s --schedule=given=f=%t.bad.json 2>&1 | FileCheck %s --check-prefix=ERROR

// A saved schedule in the place of the target's rules.
// CHECK-LABEL: func.func private @f(
// CHECK-SAME:    tir.schedule = {primitives = "s.split('twice_i', [None, 4]); s.vectorize('twice_i_1'); s.parallel('twice_i_0')", rule = "schedule"}
// CHECK:         scf.for
// CHECK:           vector.load %arg0
// CHECK:           arith.addf {{.*}} : vector<4xf32>
// CHECK:           vector.store
// CHECK:         } {tir.parallel}
// ERROR:         the schedule given for '@f': {{[a-z]+}}: there is no loop 'nothing'; there are twice_i
func.func private @f(%x: tensor<16xf32>) -> tensor<16xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [16], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<16xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}
