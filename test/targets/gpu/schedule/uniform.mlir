// RUN: mirlo-opt %s --map-threads | FileCheck %s

// A statement between loops over threads is executed by one of them, and all wait for it.
// CHECK-LABEL: func.func private @f(
// CHECK:         gpu.launch {{.*}} threads(%[[T:[^,]*]],
// CHECK:           memref.store %{{.*}}, %[[TILE:.*]][%[[T]]] : memref<8xf32, 3>
// CHECK-NEXT:      gpu.barrier
// CHECK:           %[[FIRST:.*]] = arith.cmpi ult, %[[T]],
// CHECK-NEXT:      scf.if %[[FIRST]]
// CHECK-NEXT:        memref.store %{{.*}}, %[[TILE]][%c0]
// CHECK-NEXT:      }
// CHECK-NEXT:      gpu.barrier
// CHECK-NEXT:      memref.load %[[TILE]][%[[T]]]
func.func private @f(%x: memref<8xf32>, %y: memref<8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %tile = memref.alloca() : memref<8xf32, 3>
  "tir.for"(%c0, %c8) ({
  ^bb0(%t: index):
    %a = memref.load %x[%t] : memref<8xf32>
    memref.store %a, %tile[%t] : memref<8xf32, 3>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "threadIdx.x"} : (index, index) -> ()
  memref.store %zero, %tile[%c0] : memref<8xf32, 3>
  "tir.for"(%c0, %c8) ({
  ^bb0(%t: index):
    %a = memref.load %tile[%t] : memref<8xf32, 3>
    memref.store %a, %y[%t] : memref<8xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "threadIdx.x"} : (index, index) -> ()
  return
}
