// RUN: mirlo-opt %s --lower-loops | FileCheck %s

// To a function that is called with buffers of several types, a buffer is a pointer.
// CHECK:       func.func private @fill(!llvm.ptr, index)
// CHECK-LABEL: func.func @two_types(
// CHECK:         memref.extract_aligned_pointer_as_index %arg0 : memref<8xf32> -> index
// CHECK:         %[[P:.*]] = llvm.inttoptr
// CHECK-NEXT:    call @fill(%[[P]], %{{.*}}) : (!llvm.ptr, index) -> ()
// CHECK:         memref.extract_aligned_pointer_as_index %arg1 : memref<2x2xi8> -> index
// CHECK:         call @fill(%{{.*}}, %{{.*}}) : (!llvm.ptr, index) -> ()
func.func @two_types(%x: memref<8xf32>, %y: memref<2x2xi8>, %n: index) attributes {tir.prim_func} {
  "tir.call_extern"(%x, %n) {function = "fill", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8xf32>, index) -> ()
  "tir.call_extern"(%y, %n) {function = "fill", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<2x2xi8>, index) -> ()
  return
}
