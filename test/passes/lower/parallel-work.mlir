// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10000" | FileCheck %s

// How much an iteration computes depends on a size: in each call the work of the kernel, its operations and four times
// the bytes that it moves, decides whether threads share the loop, or all iterations run at once.
// CHECK-LABEL: func.func @rows
// CHECK-SAME:    %[[N:[a-z0-9]+]]: index)
// CHECK:         %[[READ:.*]] = arith.minsi
// CHECK:         %[[MOVED:.*]] = arith.muli %c4{{.*}}, %[[READ]]
// CHECK:         %[[FLOPS:.*]] = arith.muli %c16{{.*}}, %[[N]]
// CHECK:         %[[PART:.*]] = arith.addi %[[MOVED]], %[[FLOPS]]
// CHECK:         %[[WORK:.*]] = arith.addi %[[PART]], %c128
// CHECK:         %[[MUCH:.*]] = arith.cmpi sge, %[[WORK]], %c10000
// CHECK:         scf.if %[[MUCH]] {
// CHECK:           call @rows_fork(%[[TRIPS:[a-z0-9_]+]],
// CHECK:         } else {
// CHECK:           call @rows_region(%{{.*}}, %[[TRIPS]],
func.func @rows(%x: memref<8x100000xf32>, %y: memref<8xf32>, %n: index) attributes {tir.prim_func, tir.kind = "contraction", tir.flops = "16*n", tir.moved = ["8*n", 8], tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %0 = memref.load %x[%i, %j] : memref<8x100000xf32>
      %1 = arith.addf %0, %0 : f32
      memref.store %1, %x[%i, %j] : memref<8x100000xf32>
    }
  } {tir.parallel}
  return
}

// A kernel that only moves data of a size: no operation, and buffers whose types do not say how large they are. Its
// parameter is a quotient of that size.
// CHECK-LABEL: func.func @moves
// CHECK-SAME:    %[[N:[a-z0-9]+]]: index)
// CHECK:         %[[WORK:.*]] = arith.muli %c256, %[[N]]
// CHECK:         arith.cmpi sge, %[[WORK]], %c10000
// CHECK:         call @moves_fork(
// CHECK:         call @moves_region(
func.func @moves(%x: memref<281474976710656xf32>, %y: memref<281474976710656xf32>, %n: index) attributes {tir.prim_func, tir.flops = 0, tir.moved = ["8*floordiv(n + 3, 4)", "8*floordiv(n + 3, 4)"], tir.symbols = ["floordiv(n + 3, 4)"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %k = affine.apply affine_map<(d0, d1) -> (d0 + d1 * 8)>(%i, %j)
      %0 = memref.load %x[%k] : memref<281474976710656xf32>
      memref.store %0, %y[%k] : memref<281474976710656xf32>
    }
  } {tir.parallel}
  return
}

// Of an argument whose size is known, no more than that is read.
// CHECK-LABEL: func.func @gathers
// CHECK:         arith.minsi
// CHECK:         arith.cmpi sge, %{{.*}}, %c10000
// CHECK:         call @gathers_fork(
func.func @gathers(%x: memref<100xf32>, %y: memref<281474976710656xf32>, %n: index) attributes {tir.prim_func, tir.flops = 0, tir.moved = ["8*n", "8*n"], tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %k = affine.apply affine_map<(d0, d1) -> (d0 + d1 * 8)>(%i, %j)
      %0 = memref.load %x[%i] : memref<100xf32>
      memref.store %0, %y[%k] : memref<281474976710656xf32>
    }
  } {tir.parallel}
  return
}

// No record says how much a user's kernel moves: its iterations, of known work, decide.
// CHECK-LABEL: func.func @unknown
// CHECK-NOT:     arith.cmpi
// CHECK:         call @unknown_fork(
// CHECK:       func.func private @unknown_fork
// CHECK-SAME:    least = 313
func.func @unknown(%x: memref<281474976710656xf32>, %y: memref<281474976710656xf32>, %n: index) attributes {tir.prim_func, tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0 = memref.load %x[%i] : memref<281474976710656xf32>
    memref.store %0, %y[%i] : memref<281474976710656xf32>
  } {tir.parallel}
  return
}
