// RUN: mirlo-opt %s --verify-bounds=guard | FileCheck %s

// Accesses that are clamped, but not proven, are tested at run time: the clamp is to an axis of another size.

// CHECK-LABEL: func.func private @scalar
// CHECK: %[[K:.*]] = arith.minsi
// CHECK: %[[FIRST:.*]] = arith.cmpi sge, %[[K]], %{{.*}} : index
// CHECK: %[[LAST:.*]] = arith.cmpi sle, %[[K]], %{{.*}} : index
// CHECK: %[[INSIDE:.*]] = arith.andi %[[FIRST]], %[[LAST]] : i1
// CHECK: %[[V:.*]] = scf.if %[[INSIDE]] -> (f32) {
// CHECK-NEXT: %[[READ:.*]] = memref.load %{{.*}}[%[[K]]] : memref<10xf32>
// CHECK-NEXT: scf.yield %[[READ]] : f32
// CHECK-NEXT: } else {
// CHECK: scf.yield %{{.*}} : f32
// CHECK: memref.store %[[V]]
func.func private @scalar(%x: memref<10xf32>, %at: memref<i64>, %y: memref<f32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c12 = arith.constant 12 : index
  %n = memref.load %at[] : memref<i64>
  %i = arith.index_cast %n : i64 to index
  %above = arith.maxsi %i, %c0 : index
  %k = arith.minsi %above, %c12 : index
  %v = memref.load %x[%k] : memref<10xf32>
  memref.store %v, %y[] : memref<f32>
  return
}

// A position that a tested access reads.

// CHECK-LABEL: func.func private @chained
// CHECK: scf.if
// CHECK: memref.load %{{.*}} : memref<10xi8>
// CHECK: scf.if
// CHECK: memref.store %{{.*}} : memref<1x10xi8>
func.func private @chained(%x: memref<10xi8>, %at: memref<i64>, %y: memref<1x10xi8>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c12 = arith.constant 12 : index
  %n = memref.load %at[] : memref<i64>
  %i = arith.index_cast %n : i64 to index
  %above = arith.maxsi %i, %c0 : index
  %k = arith.minsi %above, %c12 : index
  %v = memref.load %x[%k] : memref<10xi8>
  %j = arith.index_cast %v : i8 to index
  %low = arith.maxsi %j, %c0 : index
  %to = arith.minsi %low, %c12 : index
  memref.store %v, %y[%c0, %to] : memref<1x10xi8>
  return
}

// Lanes are tested one by one.

// CHECK-LABEL: func.func private @lanes
// CHECK: %[[MASK:.*]] = vector.constant_mask [4]
// CHECK: %[[ALL:.*]] = arith.andi %[[MASK]], %{{.*}} : vector<4xi1>
// CHECK: vector.gather %{{.*}}[%{{.*}}] [%{{.*}}], %[[ALL]],
func.func private @lanes(%x: memref<281474976710656xf32>, %at: memref<4xi32>, %y: memref<4xf32>, %n: index) attributes {tir.prim_func, tir.symbols = ["n"]} {
  %c0 = arith.constant 0 : index
  %low = arith.constant dense<0> : vector<4xindex>
  %p = vector.load %at[%c0] : memref<4xi32>, vector<4xi32>
  %i = arith.index_cast %p : vector<4xi32> to vector<4xindex>
  %above = arith.maxsi %i, %low : vector<4xindex>
  %size = vector.broadcast %n : index to vector<4xindex>
  %k = arith.minsi %above, %size : vector<4xindex>
  %mask = vector.constant_mask [4] : vector<4xi1>
  %none = arith.constant dense<0.0> : vector<4xf32>
  %v = vector.gather %x[%c0] [%k], %mask, %none : memref<281474976710656xf32>, vector<4xindex>, vector<4xi1>, vector<4xf32> into vector<4xf32>
  vector.store %v, %y[%c0] : memref<4xf32>, vector<4xf32>
  return
}

func.func @main(%at: tensor<4xi32>, %x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<4xf32> {
  %0 = "relax.call_tir"(%x, %at) {callee = @lanes, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>, tensor<4xi32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A position that nothing limits is tested too: a schedule of Mirlo's made the loops.

// CHECK-LABEL: func.func private @unlimited
// CHECK: scf.if
// CHECK-NEXT: memref.load %{{.*}} : memref<10xf32>
func.func private @unlimited(%x: memref<10xf32>, %at: memref<i64>, %y: memref<f32>) attributes {tir.prim_func} {
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  %v = memref.load %x[%k] : memref<10xf32>
  memref.store %v, %y[] : memref<f32>
  return
}

// Views are tested to lie in their buffer: one that begins at a position of data, and what is left behind it.

// CHECK-LABEL: func.func private @views
// CHECK: %[[BYTES:.*]] = arith.muli %{{.*}}, %{{.*}} : index
// CHECK: arith.cmpi sge, %[[AT:.*]], %{{.*}} : index
// CHECK: %[[LEFT:.*]] = arith.subi %[[BYTES]], %[[AT]] : index
// CHECK: %[[FITS:.*]] = arith.cmpi sge, %[[LEFT]], %{{.*}} : index
// CHECK: scf.if
// CHECK-NEXT: memref.load %{{.*}} : memref<4xf32>
// CHECK: %[[REST:.*]] = arith.subi %[[BYTES]], %{{.*}} : index
// CHECK: arith.divsi %[[REST]], %{{.*}} : index
// CHECK: scf.if
// CHECK-NEXT: memref.load %{{.*}} : memref<281474976710656xf32>
func.func private @views(%at: memref<i64>, %y: memref<f32>, %w: memref<281474976710656xi8>, %n: index) attributes {tir.prim_func, tir.symbols = ["n"], tir.workspace = "8*n"} {
  %c0 = arith.constant 0 : index
  %p = memref.load %at[] : memref<i64>
  %i = arith.index_cast %p : i64 to index
  %part = memref.view %w[%i][] : memref<281474976710656xi8> to memref<4xf32>
  %a = memref.load %part[%c0] : memref<4xf32>
  %rest = memref.view %w[%n][] : memref<281474976710656xi8> to memref<281474976710656xf32>
  %b = memref.load %rest[%i] : memref<281474976710656xf32>
  %v = arith.addf %a, %b : f32
  memref.store %v, %y[] : memref<f32>
  return
}

func.func @of_views(%at: tensor<i64>, %like: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<f32> {
  %0 = "relax.call_tir"(%at) {callee = @views, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<i64>) -> tensor<f32>
  return %0 : tensor<f32>
}

// A size that the kernel does not know becomes a parameter, whose value callers pass.

// CHECK-LABEL: func.func private @size_of_caller
// CHECK-SAME: %[[N:[a-z0-9]+]]: index) attributes {tir.prim_func, tir.symbols = ["m*n"]}
// CHECK: %[[LAST:.*]] = arith.subi %[[N]], %{{.*}} : index
// CHECK: arith.cmpi sge
// CHECK: arith.cmpi sle, %{{.*}}, %[[LAST]] : index
func.func private @size_of_caller(%x: memref<281474976710656xf32>, %at: memref<i64>, %y: memref<f32>) attributes {tir.prim_func} {
  %n = memref.load %at[] : memref<i64>
  %k = arith.index_cast %n : i64 to index
  %v = memref.load %x[%k] : memref<281474976710656xf32>
  memref.store %v, %y[] : memref<f32>
  return
}

func.func @calls(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>>, %at: tensor<i64>) -> tensor<f32> {
  %0 = "relax.call_tir"(%x, %at) {callee = @size_of_caller, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<i64>) -> tensor<f32>
  return %0 : tensor<f32>
}
