// Intrinsics that LLVM has as instructions on every machine are one operation.
// RUN: mirlo-opt %s --lower-intrinsics | FileCheck %s

// CHECK-LABEL: func.func @rounding(
// CHECK-NEXT: %[[A:.*]] = math.floor %{{.*}} : vector<8xf32>
// CHECK-NEXT: %[[B:.*]] = math.ceil %[[A]] : vector<8xf32>
// CHECK-NEXT: %[[C:.*]] = math.trunc %[[B]] : vector<8xf32>
// CHECK-NEXT: %[[D:.*]] = math.roundeven %[[C]] : vector<8xf32>
// CHECK-NEXT: %[[E:.*]] = math.sqrt %[[D]] : vector<8xf32>
// CHECK-NEXT: return %[[E]]
func.func @rounding(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = "tir.floor"(%x) : (vector<8xf32>) -> vector<8xf32>
  %1 = "tir.ceil"(%0) : (vector<8xf32>) -> vector<8xf32>
  %2 = "tir.trunc"(%1) : (vector<8xf32>) -> vector<8xf32>
  %3 = "tir.roundeven"(%2) : (vector<8xf32>) -> vector<8xf32>
  %4 = "tir.sqrt"(%3) : (vector<8xf32>) -> vector<8xf32>
  return %4 : vector<8xf32>
}

// CHECK-LABEL: func.func @integers(
// CHECK-NEXT: %[[A:.*]] = math.ctpop %{{.*}} : vector<8xi32>
// CHECK-NEXT: %[[B:.*]] = math.ctlz %[[A]] : vector<8xi32>
// CHECK-NEXT: %[[C:.*]] = math.cttz %[[B]] : vector<8xi32>
// CHECK-NEXT: %[[D:.*]] = llvm.intr.sadd.sat(%[[C]], %{{.*}})
// CHECK-NEXT: %[[E:.*]] = llvm.intr.usub.sat(%[[D]], %{{.*}})
// CHECK-NEXT: return %[[E]]
func.func @integers(%x: vector<8xi32>, %y: vector<8xi32>) -> vector<8xi32> {
  %0 = "tir.popcount"(%x) : (vector<8xi32>) -> vector<8xi32>
  %1 = "tir.clz"(%0) : (vector<8xi32>) -> vector<8xi32>
  %2 = "tir.ctz"(%1) : (vector<8xi32>) -> vector<8xi32>
  %3 = "tir.sat_adds"(%2, %y) : (vector<8xi32>, vector<8xi32>) -> vector<8xi32>
  %4 = "tir.sat_subu"(%3, %y) : (vector<8xi32>, vector<8xi32>) -> vector<8xi32>
  return %4 : vector<8xi32>
}

// LLVM's saturating arithmetic is for vectors of one dimension.
// CHECK-LABEL: func.func @tile(
// CHECK: %[[FLAT:.*]] = vector.shape_cast %{{.*}} : vector<2x8xi32> to vector<16xi32>
// CHECK: %[[SUM:.*]] = llvm.intr.uadd.sat(%[[FLAT]], %{{.*}}) : (vector<16xi32>, vector<16xi32>) -> vector<16xi32>
// CHECK: vector.shape_cast %[[SUM]] : vector<16xi32> to vector<2x8xi32>
func.func @tile(%x: vector<2x8xi32>, %y: vector<2x8xi32>) -> vector<2x8xi32> {
  %0 = "tir.sat_addu"(%x, %y) : (vector<2x8xi32>, vector<2x8xi32>) -> vector<2x8xi32>
  return %0 : vector<2x8xi32>
}

// An index is a word of 64 bits.
// CHECK-LABEL: func.func @index(
// CHECK: %[[WORD:.*]] = arith.index_cast %{{.*}} : index to i64
// CHECK: %[[COUNT:.*]] = math.ctpop %[[WORD]] : i64
// CHECK: arith.index_cast %[[COUNT]] : i64 to index
func.func @index(%x: index) -> index {
  %0 = "tir.popcount"(%x) : (index) -> index
  return %0 : index
}

// A shift by the width or more is defined: it leaves nothing.
// CHECK-LABEL: func.func @shift(
// CHECK: %[[SHIFTED:.*]] = arith.shli %[[X:.*]], %[[N:.*]] : i32
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %[[N]], %{{.*}} : i32
// CHECK: arith.select %[[INSIDE]], %[[SHIFTED]], %{{.*}} : i32
func.func @shift(%x: i32, %n: i32) -> i32 {
  %0 = "tir.shl"(%x, %n) : (i32, i32) -> i32
  return %0 : i32
}
