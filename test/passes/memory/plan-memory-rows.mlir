// RUN: mirlo-opt %s --plan-memory | FileCheck %s

// A slice of a parameter is where the parameter is: the nearest one to a position, which counts from the end if it is
// negative. The parameter is memory of bytes, also where it is read as a whole.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[W:[^ ]*]]: memref<256xi8> {relax.param = "w", relax.type = tensor<8x4x2xf32>}
// CHECK:         %[[WHOLE:.*]] = memref.view %[[W]][%{{.*}}][] : memref<256xi8> to memref<8x4x2xf32>
// CHECK:         %[[P:.*]] = arith.minsi
// CHECK:         %[[S:.*]] = arith.muli %[[P]],
// CHECK:         %[[ROW:.*]] = memref.view %[[W]][%[[S]]][] : memref<256xi8> to memref<4x2xf32>
// CHECK:         call @add(%[[ROW]], %[[WHOLE]], %{{.*}})
func.func @main(%at: tensor<i64>) -> tensor<4x2xf32> {
  %0 = "relax.constant"() {param = "w"} : () -> tensor<8x4x2xf32>
  %1 = "relax.view_row"(%0, %at) : (tensor<8x4x2xf32>, tensor<i64>) -> tensor<4x2xf32>
  %2 = "relax.call_tir"(%1, %0) {callee = @add, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4x2xf32>, tensor<8x4x2xf32>) -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}
func.func private @add(%x: memref<4x2xf32>, %y: memref<8x4x2xf32>, %z: memref<4x2xf32>) attributes {tir.prim_func} {
  return
}
