// RUN: mirlo-opt %s --verify-bounds=fail=all | FileCheck %s

// Accesses that are proven: nothing is reported, and nothing changes.

// CHECK: func.func private @loops
func.func private @loops(%x: memref<4x8xf32>, %y: memref<4x8xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c4 step %c1 {
    scf.for %j = %c0 to %c8 step %c4 {
      %v = vector.load %x[%i, %j] : memref<4x8xf32>, vector<4xf32>
      vector.store %v, %y[%i, %j] : memref<4x8xf32>, vector<4xf32>
    }
  }
  return
}

// The last tile begins early enough, under a guard; the others are whole.
func.func private @tiles(%x: memref<100xf32>, %y: memref<100xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c12 = arith.constant 12 : index
  %c84 = arith.constant 84 : index
  %c100 = arith.constant 100 : index
  scf.for %i = %c0 to %c100 step %c12 {
    %start = arith.minsi %i, %c84 : index
    %v = vector.load %x[%start] : memref<100xf32>, vector<16xf32>
    vector.store %v, %y[%start] : memref<100xf32>, vector<16xf32>
    %whole = arith.cmpi sle, %i, %c84 : index
    scf.if %whole {
      %w = vector.load %x[%i] : memref<100xf32>, vector<16xf32>
      vector.store %w, %y[%i] : memref<100xf32>, vector<16xf32>
    }
  }
  return
}

// A tail under a mask.
func.func private @mask(%x: memref<20xf32>, %y: memref<20xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c20 = arith.constant 20 : index
  %zero = arith.constant dense<0.0> : vector<16xf32>
  scf.for %i = %c0 to %c20 step %c16 {
    %left = arith.subi %c20, %i : index
    %mask = vector.create_mask %left : vector<16xi1>
    %v = vector.maskedload %x[%i], %mask, %zero : memref<20xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
    vector.maskedstore %y[%i], %mask, %v : memref<20xf32>, vector<16xi1>, vector<16xf32>
  }
  return
}

// The last lanes of a column that is gathered are under a mask: what it says of each lane is rounded, as the index is.
func.func private @column(%x: memref<360xf32>, %y: memref<360xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c15 = arith.constant 15 : index
  %c24 = arith.constant 24 : index
  %rows = arith.constant dense<[0, 24, 48, 72, 96, 120, 144, 168]> : vector<8xindex>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  scf.for %i = %c0 to %c15 step %c8 {
    %left = arith.subi %c15, %i : index
    %mask = vector.create_mask %left : vector<8xi1>
    %row = arith.muli %i, %c24 : index
    scf.for %j = %c0 to %c24 step %c1 {
      %from = arith.addi %row, %j : index
      %v = vector.gather %x[%from] [%rows], %mask, %zero : memref<360xf32>, vector<8xindex>, vector<8xi1>, vector<8xf32> into vector<8xf32>
      %column = arith.muli %j, %c15 : index
      %to = arith.addi %column, %i : index
      vector.maskedstore %y[%to], %mask, %v : memref<360xf32>, vector<8xi1>, vector<8xf32>
    }
  }
  return
}

// An index from data that is wrapped and clamped.
func.func private @data(%x: memref<10xf32>, %at: memref<4xi64>, %y: memref<4xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c9 = arith.constant 9 : index
  %c10 = arith.constant 10 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %n = memref.load %at[%i] : memref<4xi64>
    %k = arith.index_cast %n : i64 to index
    %negative = arith.cmpi slt, %k, %c0 : index
    %from_end = arith.addi %k, %c10 : index
    %wrapped = arith.select %negative, %from_end, %k : index
    %above = arith.maxsi %wrapped, %c0 : index
    %clamped = arith.minsi %above, %c9 : index
    %v = memref.load %x[%clamped] : memref<10xf32>
    memref.store %v, %y[%i] : memref<4xf32>
  }
  return
}

// An unsigned comparison guards both ends; so does a mask of a gather.
func.func private @guards(%x: memref<10xf32>, %at: memref<4xi32>, %y: memref<4xf32>, %one: memref<1xi32>, %z: memref<1xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c10 = arith.constant 10 : index
  %zero = arith.constant dense<0.0> : vector<4xf32>
  %all = arith.constant dense<true> : vector<4xi1>
  %tens = arith.constant dense<10> : vector<4xi32>
  %n = vector.load %at[%c0] : memref<4xi32>, vector<4xi32>
  %inside = arith.cmpi ult, %n, %tens : vector<4xi32>
  %v = vector.gather %x[%c0] [%n], %inside, %zero : memref<10xf32>, vector<4xi32>, vector<4xi1>, vector<4xf32> into vector<4xf32>
  vector.store %v, %y[%c0] : memref<4xf32>, vector<4xf32>
  %first = memref.load %one[%c0] : memref<1xi32>
  %k = arith.index_cast %first : i32 to index
  %fits = arith.cmpi ult, %k, %c10 : index
  scf.if %fits {
    %w = memref.load %x[%k] : memref<10xf32>
    memref.store %w, %z[%c0] : memref<1xf32>
  }
  return
}

// The sizes of unbounded buffers are those of the call.
func.func private @dynamic(%x: memref<281474976710656xf32>, %y: memref<281474976710656xf32>, %n: index, %m: index) attributes {tir.prim_func, tir.symbols = ["n", "m"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %row = arith.muli %i, %m : index
    scf.for %j = %c0 to %m step %c1 {
      %k = arith.addi %row, %j : index
      %v = memref.load %x[%k] : memref<281474976710656xf32>
      memref.store %v, %y[%k] : memref<281474976710656xf32>
    }
  }
  return
}

func.func @main(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>> {
  %0 = "relax.call_tir"(%x) {callee = @dynamic, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>>
  return %0 : tensor<?x?xf32, #relax.dims<["n", "m"]>>
}

// A position that is kept on the stack: within the bounds of all that is stored there, which is a loop's index.
func.func private @position(%x: memref<10xf32>, %y: memref<f32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  %first = arith.constant 0 : i64
  %at = memref.alloca() : memref<i64>
  memref.store %first, %at[] : memref<i64>
  scf.for %i = %c0 to %c10 step %c1 {
    %n = memref.load %at[] : memref<i64>
    %k = arith.index_cast %n : i64 to index
    %best = memref.load %x[%k] : memref<10xf32>
    %v = memref.load %x[%i] : memref<10xf32>
    %better = arith.cmpf ogt, %v, %best : f32
    scf.if %better {
      %j = arith.index_cast %i : index to i64
      memref.store %j, %at[] : memref<i64>
    }
  }
  return
}

// A counter that starts again: what is loaded behind the branch is 0, or what was compared.
func.func private @ring(%x: memref<4xf32>, %y: memref<10xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c10 = arith.constant 10 : index
  %at = memref.alloca() : memref<index>
  memref.store %c4, %at[] : memref<index>
  scf.for %i = %c0 to %c10 step %c1 {
    %k = memref.load %at[] : memref<index>
    %end = arith.cmpi sge, %k, %c4 : index
    scf.if %end {
      memref.store %c0, %at[] : memref<index>
    }
    %j = memref.load %at[] : memref<index>
    %v = memref.load %x[%j] : memref<4xf32>
    memref.store %v, %y[%i] : memref<10xf32>
    %next = arith.addi %j, %c1 : index
    memref.store %next, %at[] : memref<index>
  }
  return
}

// A counter of elements, compared with the size before each store.
func.func private @counter(%x: memref<10xi8>, %y: memref<4xi64>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c10 = arith.constant 10 : index
  %zero = arith.constant 0 : i8
  %count = memref.alloca() : memref<index>
  memref.store %c0, %count[] : memref<index>
  scf.for %i = %c0 to %c10 step %c1 {
    %v = memref.load %x[%i] : memref<10xi8>
    %set = arith.cmpi ne, %v, %zero : i8
    scf.if %set {
      %k = memref.load %count[] : memref<index>
      %fits = arith.cmpi slt, %k, %c4 : index
      scf.if %fits {
        %j = arith.index_cast %i : index to i64
        memref.store %j, %y[%k] : memref<4xi64>
        %next = arith.addi %k, %c1 : index
        memref.store %next, %count[] : memref<index>
      }
    }
  }
  return
}

// Positions in a constant: each call's is read.
func.func private @table(%x: memref<10xf32>, %at: memref<4xi32>, %y: memref<4xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %n = memref.load %at[%i] : memref<4xi32>
    %k = arith.index_cast %n : i32 to index
    %v = memref.load %x[%k] : memref<10xf32>
    memref.store %v, %y[%i] : memref<4xf32>
  }
  return
}

func.func @of_table(%x: tensor<10xf32>) -> tensor<4xf32> {
  %at = "relax.constant"() {value = dense<[9, 0, 4, 4]> : tensor<4xi32>} : () -> tensor<4xi32>
  %0 = "relax.call_tir"(%x, %at) {callee = @table, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<10xf32>, tensor<4xi32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A position that a guard leaves inside of a dynamic axis: the sum it is part of does not overflow there.
func.func private @guarded_rows(%x: memref<281474976710656xf32>, %at: memref<i64>, %n: index, %m: index) attributes {tir.prim_func, tir.symbols = ["n", "m"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %p = memref.load %at[] : memref<i64>
  %k = arith.index_cast %p : i64 to index
  %above = arith.cmpi sge, %k, %c0 : index
  %below = arith.cmpi slt, %k, %n : index
  %inside = arith.andi %above, %below : i1
  scf.if %inside {
    %row = arith.muli %k, %m : index
    scf.for %j = %c0 to %m step %c1 {
      %i = arith.addi %row, %j : index
      memref.store %zero, %x[%i] : memref<281474976710656xf32>
    }
  }
  return
}

func.func @of_guarded_rows(%at: tensor<i64>, %like: tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>> {
  "relax.call_tir"(%like, %at) {callee = @guarded_rows, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<i64>) -> ()
  return %like : tensor<?x?xf32, #relax.dims<["n", "m"]>>
}

// A position that is tested before it is read again: nothing writes to the buffer that holds it.
func.func private @read_again(%x: memref<10xf32>, %at: memref<4xi64>, %y: memref<4xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %first = arith.constant 0 : i64
  %end = arith.constant 10 : i64
  scf.for %i = %c0 to %c4 step %c1 {
    %n = memref.load %at[%i] : memref<4xi64>
    %above = arith.cmpi sge, %n, %first : i64
    %below = arith.cmpi slt, %n, %end : i64
    %inside = arith.andi %above, %below : i1
    scf.if %inside {
      %m = memref.load %at[%i] : memref<4xi64>
      %k = arith.index_cast %m : i64 to index
      %v = memref.load %x[%k] : memref<10xf32>
      memref.store %v, %y[%i] : memref<4xf32>
    }
  }
  return
}
