// RUN: echo '{"version": 1, "primitives": [["split", "twice_i", [null, 8], {"tail": "peel"}], ["vectorize", "twice_i_1"], ["parallel", "twice_i_0"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// A size that only the run time knows: complete vectors first, on threads, then those that are left. LLVM
// does not unroll these loops.
// CHECK:       #[[UNROLL:.*]] = #llvm.loop_unroll<disable = true>
// CHECK:       #[[ROLLED:.*]] = #llvm.loop_annotation<unroll = #[[UNROLL]]>
// CHECK-LABEL: func.func private @f(
// CHECK-SAME:    %[[N:arg[0-9]+]]: index
// CHECK:         %[[ALL:.*]] = arith.floordivsi
// CHECK:         scf.for
// CHECK:           vector.load %arg0
// CHECK:           vector.store
// CHECK:         } {llvm.loop_annotation = #[[ROLLED]], tir.parallel}
// CHECK:         scf.for
// CHECK:           vector.create_mask
// CHECK:           vector.maskedload %arg0
// CHECK:           vector.maskedstore
// CHECK:         } {llvm.loop_annotation = #[[ROLLED]]}
func.func private @f(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = ["n"], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}
