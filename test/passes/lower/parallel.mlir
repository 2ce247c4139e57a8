// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10" | FileCheck %s
// RUN: mirlo-opt %s --outline-parallel="threads=2" | FileCheck %s --check-prefix=LITTLE
// RUN: mirlo-opt %s --outline-parallel | FileCheck %s --check-prefix=ONE

// The body of a parallel loop becomes a function of a range; scratch memory that only it uses is its own.

// CHECK-LABEL: func.func @kernel
// CHECK:         call @kernel_fork(%{{.*}}, %arg0, %arg1) : (index, memref<64x8xf32>, memref<64x8xf32>) -> ()
// CHECK-NEXT:    return
// CHECK-LABEL: func.func private @kernel_region
// CHECK-SAME:    (%[[LOW:.*]]: index, %[[HIGH:.*]]: index, %[[X:.*]]: memref<64x8xf32>, %[[Y:.*]]: memref<64x8xf32>)
// CHECK:         %[[ROW:.*]] = memref.alloca() {{.*}} : memref<8xf32>
// CHECK:         scf.for %[[I:.*]] = %[[LOW]] to %[[HIGH]]
// CHECK:           memref.store %{{.*}}, %[[ROW]]
// CHECK:           memref.store %{{.*}}, %[[Y]]
// CHECK:       func.func private @kernel_fork(index, memref<64x8xf32>, memref<64x8xf32>)
// CHECK-SAME:    tir.fork = {chunks = 8 : i64, least = 2 : i64, region = @kernel_region, threads = 2 : i64}

// LITTLE-NOT: fork
// ONE-NOT:    fork
func.func @kernel(%x: memref<64x8xf32>, %y: memref<64x8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %row = memref.alloca() : memref<8xf32>
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %0 = memref.load %x[%i, %j] : memref<64x8xf32>
      memref.store %0, %row[%j] : memref<8xf32>
      %1 = memref.load %row[%j] : memref<8xf32>
      memref.store %1, %y[%i, %j] : memref<64x8xf32>
    }
  } {tir.parallel}
  return
}
