// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10" | FileCheck %s

// Two parallel loops, one in the other, are one for the threads: 5 x 7 parts in place of 5.

// CHECK-LABEL: func.func @both
// CHECK:         %[[ALL:.*]] = arith.constant 35 : index
// CHECK:         call @both_fork(%{{.*}}, %[[ALL]],
func.func @both(%x: memref<14xf32>, %y: memref<14x7xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c7 = arith.constant 7 : index
  %c14 = arith.constant 14 : index
  scf.for %i = %c0 to %c14 step %c3 {
    %0 = memref.load %x[%i] : memref<14xf32>
    scf.for %j = %c0 to %c7 step %c1 {
      memref.store %0, %y[%i, %j] : memref<14x7xf32>
    } {tir.parallel}
  } {tir.parallel}
  return
}

// What is written before the inner loop is written once: only the outer loop is shared.

// CHECK-LABEL: func.func @writes
// CHECK:         %[[FIVE:.*]] = arith.constant 5 : index
// CHECK:         call @writes_fork(%{{.*}}, %[[FIVE]],
func.func @writes(%x: memref<5xf32>, %y: memref<5x7xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c7 = arith.constant 7 : index
  %n = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c5 step %c1 {
    memref.store %n, %x[%i] : memref<5xf32>
    scf.for %j = %c0 to %c7 step %c1 {
      memref.store %n, %y[%i, %j] : memref<5x7xf32>
    } {tir.parallel}
  } {tir.parallel}
  return
}

// Twelve iterations are twelve parts: eight would be of one and of two.

// CHECK-LABEL: func.func @twelve
// CHECK:         call @twelve_fork
func.func @twelve(%y: memref<12xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c12 = arith.constant 12 : index
  %n = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c12 step %c1 {
    memref.store %n, %y[%i] : memref<12xf32>
  } {tir.parallel}
  return
}

// Many iterations are enough.

// CHECK-LABEL: func.func @many
// CHECK:         %[[MANY:.*]] = arith.constant 100 : index
// CHECK:         call @many_fork(%{{.*}}, %[[MANY]],
func.func @many(%y: memref<100x7xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %c100 = arith.constant 100 : index
  %n = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c100 step %c1 {
    scf.for %j = %c0 to %c7 step %c1 {
      memref.store %n, %y[%i, %j] : memref<100x7xf32>
    } {tir.parallel}
  } {tir.parallel}
  return
}

// CHECK-LABEL: func.func private @both_region
// CHECK:         scf.for %[[U:.*]] = %arg0 to %arg1
// CHECK-DAG:       %[[P:.*]] = arith.divui %[[U]], %[[SEVEN:.*]] : index
// CHECK-DAG:       %[[R:.*]] = arith.remui %[[U]], %[[SEVEN]] : index
// CHECK:           memref.load %{{.*}}[%[[I:.*]]] : memref<14xf32>
// CHECK-NOT:       scf.for
// CHECK:           memref.store %{{.*}}, %{{.*}}[%[[I]], %[[J:.*]]] : memref<14x7xf32>
// CHECK:       func.func private @both_fork
// CHECK-SAME:    chunks = 8
// CHECK:       func.func private @twelve_fork
// CHECK-SAME:    chunks = 12
