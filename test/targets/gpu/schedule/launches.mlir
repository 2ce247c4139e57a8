// RUN: mirlo-opt %s --map-threads | FileCheck %s

// Each loop is a launch, as blocks of the second one read what others of the first one write; the device copies.
// CHECK-LABEL: func.func private @f(
// CHECK:         gpu.launch
// CHECK:           memref.store {{.*}}, %arg1
// CHECK:           gpu.terminator
// CHECK:         gpu.launch
// CHECK:           memref.load %arg1
// CHECK:           gpu.terminator
// CHECK-NEXT:    }
// CHECK-NEXT:    memref.copy %arg0, %arg3
// CHECK-NOT:     gpu.launch
func.func private @f(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>, %copy: memref<64xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  "tir.for"(%c0, %c64) ({
  ^bb0(%i: index):
    %a = memref.load %x[%i] : memref<64xf32>
    memref.store %a, %y[%i] : memref<64xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "blockIdx.x"} : (index, index) -> ()
  "tir.for"(%c0, %c64) ({
  ^bb0(%i: index):
    %c63 = arith.constant 63 : index
    %j = arith.subi %c63, %i : index
    %a = memref.load %y[%j] : memref<64xf32>
    memref.store %a, %z[%i] : memref<64xf32>
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "bound", thread = "blockIdx.x"} : (index, index) -> ()
  memref.copy %x, %copy : memref<64xf32> to memref<64xf32>
  return
}
