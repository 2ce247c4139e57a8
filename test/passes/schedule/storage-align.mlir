// RUN: echo '{"version": 1, "primitives": [["cache_read", "twice", 0, "local"], ["storage_align", "x0_local", 0, 16, 1]]}' > %t.json
// RUN: mirlo-opt %s --schedule=given=f=%t.json | FileCheck %s

// The rows of the copy have 17 elements in memory, one more than there are.
// CHECK-LABEL: func.func private @f(
// CHECK:         %[[COPY:.*]] = memref.alloca() {{.*}} : memref<8x17xf32>
// CHECK:         memref.store %{{.*}}, %[[COPY]][%{{.*}}, %{{.*}}] : memref<8x17xf32>
func.func private @f(%x: tensor<8x16xf32>) -> tensor<8x16xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 16], init = [unit],
      maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "twice",
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
