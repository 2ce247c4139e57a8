// 16-bit floats are computed in f32; the intrinsic on f32 is lowered in turn.
// RUN: mirlo-opt %s --lower-intrinsics | FileCheck %s

// CHECK-LABEL: func.func @half(
// CHECK: %[[WIDE:.*]] = arith.extf %{{.*}} : vector<16xf16> to vector<16xf32>
// CHECK: %[[ROOT:.*]] = math.sqrt %[[WIDE]] : vector<16xf32>
// CHECK: arith.truncf %[[ROOT]] : vector<16xf32> to vector<16xf16>
func.func @half(%x: vector<16xf16>) -> vector<16xf16> {
  %0 = "tir.sqrt"(%x) : (vector<16xf16>) -> vector<16xf16>
  return %0 : vector<16xf16>
}

// bf16 is the upper half of an f32, so that conversions are integer arithmetic: no machine needs an instruction for it.
// CHECK-LABEL: func.func @bfloat(
// CHECK: arith.extui %{{.*}} : i16 to i32
// CHECK: arith.shli
// CHECK: %[[WIDE:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK: math.floor %[[WIDE]] : f32
// CHECK-NOT: arith.truncf
// CHECK: arith.trunci %{{.*}} : i32 to i16
// CHECK: arith.bitcast %{{.*}} : i16 to bf16
func.func @bfloat(%x: bf16) -> bf16 {
  %0 = "tir.floor"(%x) : (bf16) -> bf16
  return %0 : bf16
}

// What only looks at bits needs no conversion.
// CHECK-LABEL: func.func @absolute(
// CHECK: %[[BITS:.*]] = arith.bitcast %{{.*}} : f16 to i16
// CHECK: %[[MASK:.*]] = arith.constant 32767 : i16
// CHECK: %[[CLEARED:.*]] = arith.andi %[[BITS]], %[[MASK]] : i16
// CHECK: %[[RESULT:.*]] = arith.bitcast %[[CLEARED]] : i16 to f16
// CHECK: return %[[RESULT]]
func.func @absolute(%x: f16) -> f16 {
  %0 = "tir.abs"(%x) : (f16) -> f16
  return %0 : f16
}

// A predicate of a narrow float is one of the wide one.
// CHECK-LABEL: func.func @isnan(
// CHECK: %[[WIDE:.*]] = arith.extf
// CHECK: %[[RESULT:.*]] = arith.cmpf uno, %[[WIDE]], %[[WIDE]] : vector<4xf32>
// CHECK: return %[[RESULT]] : vector<4xi1>
func.func @isnan(%x: vector<4xf16>) -> vector<4xi1> {
  %0 = "tir.isnan"(%x) : (vector<4xf16>) -> vector<4xi1>
  return %0 : vector<4xi1>
}
