// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10000" | FileCheck %s

// How much an iteration computes depends on a size: in each call the operations of the kernel decide whether threads
// share the loop, or all iterations run at once.
// CHECK-LABEL: func.func @rows
// CHECK-SAME:    %[[N:[a-z0-9]+]]: index)
// CHECK:         %[[FLOPS:.*]] = arith.muli %c16, %[[N]]
// CHECK:         %[[MUCH:.*]] = arith.cmpi sge, %[[FLOPS]], %c10000
// CHECK:         scf.if %[[MUCH]] {
// CHECK:           call @rows_fork(%[[TRIPS:[a-z0-9_]+]],
// CHECK:         } else {
// CHECK:           call @rows_region(%{{.*}}, %[[TRIPS]],
func.func @rows(%x: memref<8x100000xf32>, %n: index) attributes {tir.prim_func, tir.kind = "contraction", tir.flops = "16*n", tir.symbols = ["n"]} {
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
