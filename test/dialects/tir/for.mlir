// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Loops of every kind.

// CHECK-LABEL: func.func @serial(
func.func @serial(%lower: index, %upper: index) {
  // CHECK: "tir.for"(%{{.*}}, %{{.*}}) ({
  // CHECK-NEXT: ^bb0(%{{.*}}: index):
  // CHECK-NEXT: "tir.yield"()
  // CHECK-NEXT: }) : (index, index) -> ()
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) : (index, index) -> ()
  return
}

// CHECK-LABEL: func.func @parallel(
func.func @parallel(%lower: index, %upper: index) {
  // CHECK: "tir.for"(%{{.*}}, %{{.*}}) ({
  // CHECK-NEXT: ^bb0(%{{.*}}: index):
  // CHECK-NEXT: "tir.yield"()
  // CHECK-NEXT: }) {kind = "parallel"} : (index, index) -> ()
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "parallel"} : (index, index) -> ()
  return
}

// CHECK-LABEL: func.func @vectorized(
func.func @vectorized(%lower: index, %upper: index) {
  // CHECK: "tir.for"(%{{.*}}, %{{.*}}) ({
  // CHECK-NEXT: ^bb0(%{{.*}}: index):
  // CHECK-NEXT: "tir.yield"()
  // CHECK-NEXT: }) {kind = "vectorized"} : (index, index) -> ()
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "vectorized"} : (index, index) -> ()
  return
}

// CHECK-LABEL: func.func @unrolled(
func.func @unrolled(%lower: index, %upper: index) {
  // CHECK: "tir.for"(%{{.*}}, %{{.*}}) ({
  // CHECK-NEXT: ^bb0(%{{.*}}: index):
  // CHECK-NEXT: "tir.yield"()
  // CHECK-NEXT: }) {kind = "unrolled"} : (index, index) -> ()
  "tir.for"(%lower, %upper) ({
  ^bb0(%i: index):
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  }) {kind = "unrolled"} : (index, index) -> ()
  return
}

// CHECK-LABEL: func.func @nested_and_bound(
func.func @nested_and_bound(%x: memref<8x32xf32>, %y: memref<8x32xf32>) {
  %zero = arith.constant 0 : index
  %rows = arith.constant 8 : index
  %columns = arith.constant 32 : index
  // CHECK: "tir.for"
  "tir.for"(%zero, %rows) ({
  ^bb0(%i: index):
    // CHECK: "tir.for"
    "tir.for"(%zero, %columns) ({
    ^bb0(%j: index):
      // CHECK: memref.load
      %0 = memref.load %x[%i, %j] : memref<8x32xf32>
      // CHECK: "tir.exp"
      %1 = "tir.exp"(%0) : (f32) -> f32
      memref.store %1, %y[%i, %j] : memref<8x32xf32>
      "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
    // CHECK: }) {kind = "bound", thread = "threadIdx.x"}
    }) {kind = "bound", thread = "threadIdx.x"} : (index, index) -> ()
    "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()
  // CHECK: }) {kind = "bound", thread = "blockIdx.x"}
  }) {kind = "bound", thread = "blockIdx.x"} : (index, index) -> ()
  return
}
