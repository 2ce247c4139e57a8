// RUN: mirlo-opt %s --map-threads=target=spirv | FileCheck %s

// A device has at most 65535 blocks along an axis. A loop that may have more iterations takes the axis that is free;
// the blocks of the other one, for which none is left, compute every 65535th iteration.
// CHECK-LABEL: func.func private @f(
// CHECK:         %[[X:.*]] = arith.minsi %arg2, %{{.*}} : index
// CHECK:         %[[ROWS:.*]] = arith.divui %{{.*}}, %{{.*}} : index
// CHECK:         %[[Y:.*]] = arith.minsi %arg3, %{{.*}} : index
// CHECK:         gpu.launch blocks(%[[BX:[^,]*]], %[[BY:[^,]*]], %[[BZ:[^)]*]]) in ({{.*}} = %[[X]], {{.*}} = %[[Y]], {{.*}} = %[[ROWS]])
// CHECK:           %[[PAST:.*]] = arith.muli %[[BZ]]
// CHECK-NEXT:      %[[I:.*]] = arith.addi %[[PAST]], %[[BX]]
// CHECK-NEXT:      %[[INSIDE:.*]] = arith.cmpi ult, %[[I]], %{{.*}} : index
// CHECK-NEXT:      scf.if %[[INSIDE]]
// CHECK:             scf.for %[[ROUND:.*]] =
// CHECK:               arith.muli %[[ROUND]]
// CHECK-NEXT:          %[[J:.*]] = arith.addi %{{.*}}, %[[BY]]
// CHECK-NEXT:          arith.cmpi ult, %[[J]]
// CHECK-NEXT:          scf.if
// CHECK:                 memref.store {{.*}}[%[[I]], %[[J]]]
func.func private @f(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %n: index, %m: index) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  "tir.for"(%c0, %n) ({
  ^bb0(%i: index):
    "tir.for"(%c0, %m) ({
    ^bb0(%j: index):
      %a = memref.load %x[%i, %j] : memref<?x?xf32>
      memref.store %a, %y[%i, %j] : memref<?x?xf32>
      "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
    }) {kind = "bound", thread = "blockIdx.y"} : (index, index) -> ()
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "blockIdx.x"} : (index, index) -> ()
  return
}
