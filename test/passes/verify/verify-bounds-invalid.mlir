// RUN: mirlo-opt %s --verify-bounds --split-input-file --verify-diagnostics

// An access by a value from data that is neither clamped nor guarded is an error.

func.func private @gather(%x: memref<10xf32>, %at: memref<4xi64>, %y: memref<4xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %n = memref.load %at[%i] : memref<4xi64>
    %k = arith.index_cast %n : i64 to index
    // expected-error@+1 {{kernel '@gather': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
    %v = memref.load %x[%k] : memref<10xf32>
    memref.store %v, %y[%i] : memref<4xf32>
  }
  return
}

// -----

func.func private @half_guarded(%x: memref<10xf32>, %at: memref<i64>) attributes {tir.prim_func} {
  %c9 = arith.constant 9 : index
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  %below = arith.minsi %k, %c9 : index
  // expected-error@+1 {{kernel '@half_guarded': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
  %v = memref.load %x[%below] : memref<10xf32>
  return
}

// -----

// The sum may overflow: the guard says nothing of the value before it.

func.func private @overflow(%x: memref<10xf32>, %at: memref<i64>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  %next = arith.addi %k, %c1 : index
  %above = arith.cmpi sge, %k, %c0 : index
  %below = arith.cmpi sle, %next, %c10 : index
  %both = arith.andi %above, %below : i1
  scf.if %both {
    // expected-error@+1 {{kernel '@overflow': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
    %v = memref.load %x[%k] : memref<10xf32>
  }
  return
}
