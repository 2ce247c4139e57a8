// RUN: mirlo-opt %s --map-threads=target=spirv | FileCheck %s

// A loop without iterations is no launch, and its extent not that of another one.
// CHECK-LABEL: func.func private @f(
// CHECK-COUNT-1: gpu.launch blocks({{.*}}) in ({{.*}} = %c8{{[_0-9]*}},
// CHECK-NOT:     gpu.launch
// CHECK-NOT:     tir.for
// CHECK:         return
func.func private @f(%x: memref<8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  "tir.for"(%c0, %c8) ({
  ^bb0(%i: index):
    memref.store %one, %x[%i] : memref<8xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "blockIdx.x"} : (index, index) -> ()
  "tir.for"(%c0, %c0) ({
  ^bb0(%i: index):
    memref.store %one, %x[%i] : memref<8xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "blockIdx.x"} : (index, index) -> ()
  return
}
