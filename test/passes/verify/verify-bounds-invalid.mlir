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

// -----

// How often a condition on data holds is data: a counter that is not compared with the size is an error.

func.func private @counter(%x: memref<10xi8>, %y: memref<4xi64>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  %zero = arith.constant 0 : i8
  %count = memref.alloca() : memref<index>
  memref.store %c0, %count[] : memref<index>
  scf.for %i = %c0 to %c10 step %c1 {
    %v = memref.load %x[%i] : memref<10xi8>
    %set = arith.cmpi ne, %v, %zero : i8
    scf.if %set {
      %k = memref.load %count[] : memref<index>
      %j = arith.index_cast %i : index to i64
      // expected-error@+1 {{kernel '@counter': 'memref.store' to parameter 1: its index depends on data that is not clamped}}
      memref.store %j, %y[%k] : memref<4xi64>
      %next = arith.addi %k, %c1 : index
      memref.store %next, %count[] : memref<index>
    }
  }
  return
}

// -----

// A loop whose bound is data runs as far as the data say.

func.func private @loop_of_data(%x: memref<10xf32>, %count: memref<i64>, %y: memref<f32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.load %count[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  scf.for %i = %c0 to %k step %c1 {
    // expected-error@+1 {{kernel '@loop_of_data': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
    %v = memref.load %x[%i] : memref<10xf32>
    memref.store %v, %y[] : memref<f32>
  }
  return
}

// -----

// A value that iterations pass on, an index or not, depends on what is added to it.

func.func private @carried(%x: memref<10xf32>, %steps: memref<4xi64>, %y: memref<f32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %end = scf.for %i = %c0 to %c4 step %c1 iter_args(%at = %c0) -> (index) {
    %n = memref.load %steps[%i] : memref<4xi64>
    %k = arith.index_cast %n : i64 to index
    %next = arith.addi %at, %k : index
    scf.yield %next : index
  }
  // expected-error@+1 {{kernel '@carried': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
  %v = memref.load %x[%end] : memref<10xf32>
  memref.store %v, %y[] : memref<f32>
  return
}

// -----

// Lanes in another order are data all the same.

func.func private @shuffled(%x: memref<10xf32>, %at: memref<4xi32>, %y: memref<f32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %p = vector.load %at[%c0] : memref<4xi32>, vector<4xi32>
  %q = vector.shuffle %p, %p [3, 2, 1, 0] : vector<4xi32>, vector<4xi32>
  %k = arith.index_cast %q : vector<4xi32> to vector<4xindex>
  %mask = vector.constant_mask [4] : vector<4xi1>
  %none = arith.constant dense<0.0> : vector<4xf32>
  // expected-error@+1 {{kernel '@shuffled': 'vector.gather' to parameter 0: its index depends on data that is not clamped}}
  %v = vector.gather %x[%c0] [%k], %mask, %none : memref<10xf32>, vector<4xindex>, vector<4xi1>, vector<4xf32> into vector<4xf32>
  %sum = vector.reduction <add>, %v : vector<4xf32> into f32
  memref.store %sum, %y[] : memref<f32>
  return
}

// -----

// A constant whose elements are not all positions.

func.func private @table(%x: memref<10xf32>, %at: memref<4xi32>, %y: memref<4xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %n = memref.load %at[%i] : memref<4xi32>
    %k = arith.index_cast %n : i32 to index
    // expected-error@+1 {{'memref.load' to parameter 0: its index depends on data that is not clamped (index=v1 where v1 in [0, 10], size=10)}}
    %v = memref.load %x[%k] : memref<10xf32>
    memref.store %v, %y[%i] : memref<4xf32>
  }
  return
}

func.func @main(%x: tensor<10xf32>) -> tensor<4xf32> {
  %at = "relax.constant"() {value = dense<[10, 0, 4, 4]> : tensor<4xi32>} : () -> tensor<4xi32>
  %0 = "relax.call_tir"(%x, %at) {callee = @table, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<10xf32>, tensor<4xi32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A guard that leaves one position too many, in a dynamic axis.

func.func private @guarded_rows(%x: memref<281474976710656xf32>, %at: memref<i64>, %n: index, %m: index) attributes {tir.prim_func, tir.symbols = ["n", "m"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %p = memref.load %at[] : memref<i64>
  %k = arith.index_cast %p : i64 to index
  %above = arith.cmpi sge, %k, %c0 : index
  %below = arith.cmpi sle, %k, %n : index
  %inside = arith.andi %above, %below : i1
  scf.if %inside {
    %row = arith.muli %k, %m : index
    scf.for %j = %c0 to %m step %c1 {
      %i = arith.addi %row, %j : index
      // expected-error@+1 {{'memref.store' to parameter 0: its index depends on data that is not clamped}}
      memref.store %zero, %x[%i] : memref<281474976710656xf32>
    }
  }
  return
}

func.func @main(%at: tensor<i64>, %like: tensor<?x?xf32, #relax.dims<["n", "m"]>>) {
  "relax.call_tir"(%like, %at) {callee = @guarded_rows, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<i64>) -> ()
  return
}

// -----

// Operations on buffers that are not understood, at a position from data.

func.func private @copied(%x: memref<10xf32>, %at: memref<i64>, %y: memref<1xf32>) attributes {tir.prim_func} {
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  // expected-error@+1 {{kernel '@copied': 'memref.subview' to parameter 0: 'memref.subview' is not known}}
  %part = memref.subview %x[%k] [1] [1] : memref<10xf32> to memref<1xf32, strided<[1], offset: ?>>
  memref.copy %part, %y : memref<1xf32, strided<[1], offset: ?>> to memref<1xf32>
  return
}

// -----

// How often a loop is repeated depends on data, and so does the value that its iterations pass on.

func.func private @repeated(%x: memref<10xi8>, %y: memref<i8>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %none = arith.constant 0 : i8
  scf.while (%i = %c0) : (index) -> () {
    // expected-error@+1 {{kernel '@repeated': 'memref.load' to parameter 0: its index depends on data that is not clamped}}
    %v = memref.load %x[%i] : memref<10xi8>
    %more = arith.cmpi ne, %v, %none : i8
    scf.condition(%more)
  } do {
    scf.yield %c1 : index
  }
  return
}

// -----

// Behind a buffer that is not empty, nothing may be read.

func.func private @behind(%x: memref<281474976710656xf32>, %at: memref<i64>, %y: memref<f32>, %n: index) attributes {tir.prim_func, tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  %c10 = arith.constant 10 : index
  %p = memref.load %at[] : memref<i64>
  %i = arith.index_cast %p : i64 to index
  %above = arith.maxsi %i, %c0 : index
  %k = arith.minsi %above, %c10 : index
  // expected-error@+1 {{'memref.load' to parameter 0: its index depends on data that is not clamped}}
  %v = memref.load %x[%k] : memref<281474976710656xf32>
  memref.store %v, %y[] : memref<f32>
  return
}

func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>, %at: tensor<i64>) -> tensor<f32> {
  %0 = "relax.call_tir"(%x, %at) {callee = @behind, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>, tensor<i64>) -> tensor<f32>
  return %0 : tensor<f32>
}
