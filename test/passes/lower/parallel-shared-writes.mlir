// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10" | FileCheck %s

// Iterations that write to the same place of memory that they share are not divided: what is behind the loop reads the
// row, so that no thread can have its own.
// CHECK-LABEL: func.func @same_place
// CHECK-NOT:     fork
// CHECK:         scf.for
func.func @same_place(%x: memref<64x8xf32>, %y: memref<64xf32>, %z: memref<8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %row = memref.alloca() : memref<8xf32>
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %0 = memref.load %x[%i, %j] : memref<64x8xf32>
      memref.store %0, %row[%j] : memref<8xf32>
    }
    %1 = memref.load %row[%c1] : memref<8xf32>
    memref.store %1, %y[%i] : memref<64xf32>
  } {tir.parallel}
  memref.copy %row, %z : memref<8xf32> to memref<8xf32>
  return
}

// A place that a carried value, or a counter that iterations take from in turn, decides on is another one each time; a
// write in a branch is not one of all iterations.
// CHECK-LABEL: func.func @own_places
// CHECK:         call @own_places_fork(
// CHECK:         call @own_places_fork_0(
// CHECK:         call @own_places_fork_1(
// CHECK:         call @own_places_fork_2(
func.func @own_places(%x: memref<64x8xf32>, %y: memref<512xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %one = arith.constant 1 : i64
  %counter = memref.alloca() : memref<1xi64>
  scf.for %i = %c0 to %c64 step %c1 {
    %first = arith.muli %i, %c8 : index
    %end = scf.for %j = %c0 to %c8 step %c1 iter_args(%at = %first) -> (index) {
      %0 = memref.load %x[%i, %j] : memref<64x8xf32>
      memref.store %0, %y[%at] : memref<512xf32>
      %next = arith.addi %at, %c1 : index
      scf.yield %next : index
    }
  } {tir.parallel}
  scf.for %i = %c0 to %c64 step %c1 {
    %0 = memref.atomic_rmw addi %one, %counter[%c0] : (i64, memref<1xi64>) -> i64
    %1 = arith.index_cast %0 : i64 to index
    %2 = memref.load %x[%1, %c0] : memref<64x8xf32>
    memref.store %2, %y[%1] : memref<512xf32>
  } {tir.parallel}
  scf.for %i = %c0 to %c64 step %c1 {
    %0 = memref.load %x[%i, %c0] : memref<64x8xf32>
    %is_first = arith.cmpi eq, %i, %c0 : index
    scf.if %is_first {
      memref.store %0, %y[%c0] : memref<512xf32>
    }
    memref.store %0, %y[%i] : memref<512xf32>
  } {tir.parallel}
  scf.for %i = %c0 to %c64 step %c1 {
    %row = memref.subview %x[%i, 0] [1, 8] [1, 1] : memref<64x8xf32> to memref<8xf32, strided<[1], offset: ?>>
    %0 = memref.load %y[%i] : memref<512xf32>
    memref.store %0, %row[%c1] : memref<8xf32, strided<[1], offset: ?>>
  } {tir.parallel}
  return
}
