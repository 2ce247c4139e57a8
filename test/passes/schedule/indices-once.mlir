// RUN: echo '{"version": 1, "primitives": [["split", "twice_i", [null, 4]], ["unroll", "twice_i_1"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// Indices are computed once in a region: unrolled iterations share the multiple of the loop, a load and its store
// the whole index.
// CHECK-LABEL: func.func private @f(
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:           %[[BASE:.*]] = arith.muli %[[I]],
// CHECK-NEXT:      memref.load %arg0[%[[BASE]]]
// CHECK:           memref.store {{.*}}, %arg1[%[[BASE]]]
// CHECK-NOT:       arith.muli
// CHECK:           %[[NEXT:.*]] = arith.addi %[[BASE]], %{{.*}} : index
// CHECK-NEXT:      memref.load %arg0[%[[NEXT]]]
// CHECK:           memref.store {{.*}}, %arg1[%[[NEXT]]]
// CHECK-NOT:       arith.muli
// CHECK:           return
func.func private @f(%x: tensor<16xf32>) -> tensor<16xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [16], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<16xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}
