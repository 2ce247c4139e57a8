// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10" | FileCheck %s

// Two parallel loops, one in the other, are one range for the threads: 5 x 7 iterations in place of 5.

// CHECK-LABEL: func.func @both
// CHECK:         %[[ALL:.*]] = arith.constant 35 : index
// CHECK:         call @both_fork(%[[ALL]],
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

// Sizes that are known at run time only: bounds that the outer loop computes move in front of it.

// CHECK-LABEL: func.func @dynamic
// CHECK:         %[[TWICE:.*]] = arith.muli %arg1,
// CHECK:         %[[INNER:.*]] = arith.maxsi %[[TWICE]],
// CHECK:         %[[OUTER:.*]] = arith.maxsi %arg1,
// CHECK:         %[[ALL:.*]] = arith.muli %[[OUTER]], %[[INNER]]
// CHECK:         call @dynamic_fork(%[[ALL]], {{.*}}%[[INNER]])
func.func @dynamic(%y: memref<9x9xf32>, %n: index) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %one = arith.constant 1.0 : f32
  scf.for %i = %c0 to %n step %c1 {
    %twice = arith.muli %n, %c2 : index
    scf.for %j = %c0 to %twice step %c1 {
      memref.store %one, %y[%i, %j] : memref<9x9xf32>
    } {tir.parallel}
  } {tir.parallel}
  return
}

// A bound that the outer loop's index is part of stays, and so does the inner loop.

// CHECK-LABEL: func.func @triangle
// CHECK:         %[[ROWS:.*]] = arith.maxsi %arg1,
// CHECK:         call @triangle_fork(%[[ROWS]],
func.func @triangle(%y: memref<9x9xf32>, %n: index) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %i step %c1 {
      memref.store %one, %y[%i, %j] : memref<9x9xf32>
    } {tir.parallel}
  } {tir.parallel}
  return
}

// What is written before the inner loop is written once: only the outer loop is shared.

// CHECK-LABEL: func.func @writes
// CHECK:         arith.constant 5 : index
// CHECK:         %[[FIVE:.*]] = arith.constant 5 : index
// CHECK:         call @writes_fork(%[[FIVE]],
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

// Many iterations are enough.

// CHECK-LABEL: func.func @many
// CHECK:         arith.constant 100 : index
// CHECK:         %[[MANY:.*]] = arith.constant 100 : index
// CHECK:         call @many_fork(%[[MANY]],
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

// A thread visits the part of the outer loop in which its iterations are.

// CHECK-LABEL: func.func private @both_region
// CHECK-SAME:    (%[[FIRST:.*]]: index, %[[END:.*]]: index,
// CHECK:         %[[BEGIN:.*]] = arith.divui %[[FIRST]], %{{.*}} : index
// CHECK:         %[[STOP:.*]] = arith.divui %{{.*}}, %{{.*}} : index
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:           memref.load %{{.*}}[%[[I]]] : memref<14xf32>
// CHECK:           %[[FROM:.*]] = arith.maxsi
// CHECK:           %[[TO:.*]] = arith.minsi
// CHECK:           scf.for %[[J:.*]] = %[[FROM]] to %[[TO]] step %{{.*}} {
// CHECK:             memref.store %{{.*}}, %{{.*}}[%[[I]], %[[J]]] : memref<14x7xf32>
