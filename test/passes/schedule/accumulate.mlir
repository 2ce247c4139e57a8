// RUN: echo '{"version": 1, "primitives": [["split", "total_j", [null, 2, 8], {"tail": "peel"}], ["split", "total_i", [null, 3]], ["reorder", "total_i_0", "total_j_0", "total_i_1", "total_j_1", "total_j_2"], ["unroll", "total_i_1"], ["unroll", "total_j_1"], ["vectorize", "total_j_2"], ["accumulate", "total", "total_j_0"]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// Three rows at a time, two vectors of each: six accumulators, which are combined and stored after the loop.
// CHECK-LABEL: func.func private @f(
// CHECK:         scf.for
// CHECK:           %[[LOOP:.*]]:6 = scf.for {{.*}} -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>)
// CHECK-COUNT-6:     vector.load %{{.*}}
// CHECK:             scf.yield
// The rest of a row is a vector and four elements.
// CHECK:           vector.load
// CHECK:           vector.maskedload
// CHECK:           %[[SUM:.*]] = arith.addf {{.*}} : vector<8xf32>
// CHECK:           %[[ROW:.*]] = vector.reduction <add>, {{.*}} : vector<8xf32> into f32
// CHECK:           memref.store {{.*}}, %arg1
// CHECK-COUNT-2:   memref.store {{.*}}, %arg1
func.func private @f(%x: tensor<6x44xf32>) -> tensor<6xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32, %total: f32):
    %1 = arith.addf %total, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [6, 44], init = [1.0 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "total", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6x44xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
