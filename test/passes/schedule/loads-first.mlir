// RUN: echo '{"version": 1, "primitives": [["split", "transposed_j", [null, 2, 32, 4]], ["reorder", "transposed_j_2", "transposed_j_1"], ["unroll", "transposed_j_1"], ["vectorize", "transposed_j_3"], ["bind", "transposed_j_2", "threadIdx.x"], ["bind", "transposed_i", "blockIdx.x"]]}' > %t.json
// RUN: mirlo-opt %s --schedule="target=nvvm given=f=%t.json" | FileCheck %s

// A thread computes scalars. What its lanes access next to each other is one access; the loads of both unrolled iterations
// come before what is computed of them.
// CHECK-LABEL: func.func private @f(
// CHECK-NOT:     vector.store
// CHECK-COUNT-4: memref.load
// CHECK:         vector.load {{.*}} {alignment = 16 : i64} : {{.*}}, vector<4xf32>
// CHECK-COUNT-4: memref.load
// CHECK:         vector.load {{.*}} {alignment = 16 : i64} : {{.*}}, vector<4xf32>
// CHECK-COUNT-4: arith.addf
// CHECK:         vector.from_elements
// CHECK-COUNT-4: arith.addf
// CHECK:         vector.from_elements
// CHECK:         vector.store {{.*}} {alignment = 16 : i64}
// CHECK:         vector.store {{.*}} {alignment = 16 : i64}
// CHECK-NOT:     vector.load
func.func private @f(%x: tensor<256x64xf32>, %y: tensor<64x256xf32>) -> tensor<64x256xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x, %y) ({
  ^bb0(%i: index, %j: index, %a: f32, %b: f32):
    %1 = arith.addf %a, %b : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [64, 256], init = [unit], maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "transposed", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<256x64xf32>, tensor<64x256xf32>) -> tensor<64x256xf32>
  return %0 : tensor<64x256xf32>
}
