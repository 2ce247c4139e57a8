// RUN: mirlo-opt %s --verify-bounds=guard --verify-diagnostics

// What nothing limits in functions of a user is an error, also where it could be tested.

func.func private @unlimited(%x: memref<10xf32>, %at: memref<i64>, %y: memref<f32>) attributes {tir.prim_func, tir.foreign} {
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  // expected-error@+1 {{kernel '@unlimited': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
  %v = memref.load %x[%k] : memref<10xf32>
  memref.store %v, %y[] : memref<f32>
  return
}
