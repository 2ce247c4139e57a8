// Elementary functions are polynomials on a reduced argument: arithmetic on the whole vector, no call, no branch.
// RUN: mirlo-opt %s --lower-intrinsics | FileCheck %s
// RUN: mirlo-opt %s --lower-intrinsics=target=llvm | FileCheck %s --check-prefix=NONE
// NONE-NOT: "tir.
// NONE-NOT: call @

// CHECK-LABEL: func.func @exp(
// CHECK-SAME: %[[X:.*]]: vector<12xf32>
// (on machines that have no instruction for a part of this, as for vectors of twelve lanes)
// The argument is clamped to where the result is finite,
// CHECK: %[[HIGH:.*]] = arith.constant dense<8.900000e+01> : vector<12xf32>
// CHECK: %[[ABOVE:.*]] = arith.cmpf ogt, %[[X]], %[[HIGH]] : vector<12xf32>
// CHECK: %[[CLAMPED:.*]] = arith.select %[[ABOVE]], %[[HIGH]], %[[X]]
// and replaced where it is zero,
// CHECK: %[[VANISHES:.*]] = arith.cmpf olt, %[[CLAMPED]]
// CHECK: arith.select %[[VANISHES]]
// split into r + n log 2,
// CHECK: %[[MAGIC:.*]] = arith.constant dense<0x4B400000> : vector<12xf32>
// CHECK: %[[SHIFTED:.*]] = math.fma %{{.*}}, %{{.*}}, %[[MAGIC]]{{.*}} : vector<12xf32>
// CHECK: %[[N:.*]] = arith.subf %[[SHIFTED]], %[[MAGIC]] : vector<12xf32>
// CHECK: math.fma %[[N]]
// CHECK: %[[R:.*]] = math.fma %[[N]]
// and is a polynomial of degree five
// CHECK-COUNT-5: math.fma %{{.*}}, %[[R]], %{{.*}}{{.*}} : vector<12xf32>
// times two powers of two.
// CHECK: arith.bitcast %{{.*}} : vector<12xi32> to vector<12xf32>
// CHECK: arith.mulf
// CHECK: %[[SCALED:.*]] = arith.mulf
// CHECK: %[[RESULT:.*]] = arith.select %[[VANISHES]], %{{.*}}, %[[SCALED]]
// CHECK: return %[[RESULT]]
func.func @exp(%x: vector<12xf32>) -> vector<12xf32> {
  %0 = "tir.exp"(%x) : (vector<12xf32>) -> vector<12xf32>
  return %0 : vector<12xf32>
}

// A scalar gets the same arithmetic, so that a scalar loop vectorizes.
// CHECK-LABEL: func.func @tanh_of_scalar(
// CHECK: math.fma {{.*}} : f32
// CHECK: %[[RESULT:.*]] = arith.divf %{{.*}} : f32
// CHECK-NEXT: return %[[RESULT]]
func.func @tanh_of_scalar(%x: f32) -> f32 {
  %0 = "tir.tanh"(%x) : (f32) -> f32
  return %0 : f32
}

// Vectors of more dimensions, too.
// CHECK-LABEL: func.func @erf_of_tile(
// CHECK: %[[BELOW:.*]] = arith.divf %{{.*}} : vector<4x16xf32>
// CHECK: %[[CLAMPED:.*]] = arith.select %{{.*}}, %{{.*}}, %[[BELOW]] : vector<4x16xi1>, vector<4x16xf32>
// CHECK: %[[BITS:.*]] = arith.bitcast %[[CLAMPED]]
// CHECK: %[[SIGNED:.*]] = arith.xori %[[BITS]]
// CHECK: %[[RESULT:.*]] = arith.bitcast %[[SIGNED]]
// CHECK: return %[[RESULT]]
func.func @erf_of_tile(%x: vector<4x16xf32>) -> vector<4x16xf32> {
  %0 = "tir.erf"(%x) : (vector<4x16xf32>) -> vector<4x16xf32>
  return %0 : vector<4x16xf32>
}

// f64 has polynomials of its own.
// CHECK-LABEL: func.func @log_f64(
// CHECK: arith.constant dense<0.147964{{.*}}> : vector<8xf64>
// CHECK-COUNT-7: math.fma
func.func @log_f64(%x: vector<8xf64>) -> vector<8xf64> {
  %0 = "tir.log"(%x) : (vector<8xf64>) -> vector<8xf64>
  return %0 : vector<8xf64>
}

// A constant is made once in a block.
// CHECK-LABEL: func.func @shared_constants(
// CHECK-COUNT-1: arith.constant dense<0x4B400000>
// CHECK-NOT: arith.constant dense<0x4B400000>
// CHECK: return
func.func @shared_constants(%x: vector<16xf32>, %y: vector<16xf32>) -> (vector<16xf32>, vector<16xf32>) {
  %0 = "tir.exp"(%x) : (vector<16xf32>) -> vector<16xf32>
  %1 = "tir.exp"(%y) : (vector<16xf32>) -> vector<16xf32>
  return %0, %1 : vector<16xf32>, vector<16xf32>
}
