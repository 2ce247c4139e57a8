// RUN: mirlo-opt %s --verify-bounds=remarks --split-input-file --verify-diagnostics

// Accesses that depend on loops and sizes only, and are not proven, are reported with what is known.

func.func private @too_far(%x: memref<8xf32>, %y: memref<8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %k = arith.addi %i, %c1 : index
    // expected-remark@+1 {{kernel '@too_far': 'memref.load' to parameter 0: its index is not proven to be in bounds (index=v0 + 1 where v0 in [0, 7], size=8)}}
    %v = memref.load %x[%k] : memref<8xf32>
    memref.store %v, %y[%i] : memref<8xf32>
  }
  return
}

// -----

func.func private @vector_too_long(%x: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c20 = arith.constant 20 : index
  scf.for %i = %c0 to %c20 step %c16 {
    // expected-remark@+1 {{'vector.load' to parameter 0: its index is not proven to be in bounds (index=16*v0 where v0 in [0, 1], to=16*v0 + 15 where v0 in [0, 1], size=20)}}
    %v = vector.load %x[%i] : memref<20xf32>, vector<16xf32>
  }
  return
}

// -----

func.func private @of_unknown_size(%x: memref<281474976710656xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  // expected-remark@+1 {{'memref.load' to parameter 0: no call tells the size of parameter 0}}
  %v = memref.load %x[%c0] : memref<281474976710656xf32>
  return
}

// -----

func.func private @empty(%x: memref<281474976710656xf32>, %n: index) attributes {tir.prim_func, tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  // Without elements there is memory that may be read, but not written.
  %v = memref.load %x[%c0] : memref<281474976710656xf32>
  // expected-remark@+1 {{kernel '@empty' (pick): 'memref.store' to parameter 0: its index is not proven to be in bounds (index=0, size=4*n bytes)}}
  memref.store %v, %x[%c0] : memref<281474976710656xf32>
  return
}

func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>) {
  "relax.call_tir"(%x) {callee = @empty, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>) -> () loc("pick")
  return
}

// -----

// What is on the stack may be read before it is stored.

func.func private @not_filled(%x: memref<10xf32>, %y: memref<f32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  %at = memref.alloca() : memref<index>
  scf.for %i = %c0 to %c10 step %c1 {
    %k = memref.load %at[] : memref<index>
    // expected-error@+1 {{kernel '@not_filled': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
    %v = memref.load %x[%k] : memref<10xf32>
    memref.store %i, %at[] : memref<index>
  }
  return
}
