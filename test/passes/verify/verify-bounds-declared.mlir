// RUN: mirlo-opt %s --verify-bounds=guard | FileCheck %s
// RUN: not mirlo-opt %s --verify-bounds=fail=all 2>&1 | FileCheck %s --check-prefix=ALL

// A rule declares why accesses by data are in bounds: they are left as they are. Where all accesses must be proven it does not count.

// CHECK: memref.load %{{.*}}[%{{.*}}] : memref<10xf32>
// CHECK-NOT: scf.if
// ALL: error: pass 'verify-bounds' failed: kernel '@declared'
func.func private @declared(%x: memref<10xf32>, %at: memref<i64>, %y: memref<f32>) attributes {tir.prim_func, tir.unproven = "the caller sorts them"} {
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  %v = memref.load %x[%k] : memref<10xf32>
  memref.store %v, %y[] : memref<f32>
  return
}
