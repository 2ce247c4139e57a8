// RUN: not mirlo-opt %s --lower-intrinsics 2>&1 | FileCheck %s
// CHECK: intrinsics-scalable.mlir:5:8: error: pass 'lower-intrinsics' failed: 'tir.exp' has operands of type vector<[4]xf32>: only vectors of a fixed length can be lowered

func.func @f(%x: vector<[4]xf32>) -> vector<[4]xf32> {
  %0 = "tir.exp"(%x) : (vector<[4]xf32>) -> vector<[4]xf32>
  return %0 : vector<[4]xf32>
}
