// RUN: echo '{"version": 1, "primitives": [["split", "twice_i", [null, 16], {"tail": "peel"}], ["vectorize", "twice_i_1"]]}' > %t.json
// RUN: sed "s/SIZE/35/g" %s > %t.mlir; mirlo-opt %t.mlir --schedule=given=f=%t.json | FileCheck %s --check-prefix=THREE
// RUN: sed "s/SIZE/40/g" %s > %t.mlir; mirlo-opt %t.mlir --schedule=given=f=%t.json | FileCheck %s --check-prefix=EIGHT
// RUN: sed "s/SIZE/33/g" %s > %t.mlir; mirlo-opt %t.mlir --schedule=given=f=%t.json | FileCheck %s --check-prefix=ONE

// A tail of three elements is a vector of four with a mask; one of eight has no mask; one element is a scalar.
// THREE:         scf.for
// THREE:         }
// THREE:         vector.constant_mask [3] : vector<4xi1>
// THREE:         vector.maskedstore {{.*}} vector<4xf32>
// EIGHT:         scf.for
// EIGHT:         }
// EIGHT-NOT:     mask
// EIGHT:         vector.load {{.*}} vector<8xf32>
// EIGHT:         vector.store {{.*}} vector<8xf32>
// ONE:           scf.for
// ONE:           }
// ONE-NOT:       vector
// ONE:           memref.store
func.func private @f(%x: tensor<SIZExf32>) -> tensor<SIZExf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [SIZE], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<SIZExf32>) -> tensor<SIZExf32>
  return %0 : tensor<SIZExf32>
}
