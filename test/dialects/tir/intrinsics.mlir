// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Every intrinsic, on scalars and on vectors.

// CHECK-LABEL: func.func @float_scalars(
func.func @float_scalars(%x: f32, %y: f32, %z: f32, %n: i32) {
  // CHECK: "tir.exp"(%{{.*}}) : (f32) -> f32
  %0 = "tir.exp"(%x) : (f32) -> f32
  // CHECK: "tir.exp2"(%{{.*}}) : (f32) -> f32
  %1 = "tir.exp2"(%x) : (f32) -> f32
  // CHECK: "tir.expm1"(%{{.*}}) : (f32) -> f32
  %2 = "tir.expm1"(%x) : (f32) -> f32
  // CHECK: "tir.log"(%{{.*}}) : (f32) -> f32
  %3 = "tir.log"(%x) : (f32) -> f32
  // CHECK: "tir.log2"(%{{.*}}) : (f32) -> f32
  %4 = "tir.log2"(%x) : (f32) -> f32
  // CHECK: "tir.log10"(%{{.*}}) : (f32) -> f32
  %5 = "tir.log10"(%x) : (f32) -> f32
  // CHECK: "tir.log1p"(%{{.*}}) : (f32) -> f32
  %6 = "tir.log1p"(%x) : (f32) -> f32
  // CHECK: "tir.sqrt"(%{{.*}}) : (f32) -> f32
  %7 = "tir.sqrt"(%x) : (f32) -> f32
  // CHECK: "tir.rsqrt"(%{{.*}}) : (f32) -> f32
  %8 = "tir.rsqrt"(%x) : (f32) -> f32
  // CHECK: "tir.cbrt"(%{{.*}}) : (f32) -> f32
  %9 = "tir.cbrt"(%x) : (f32) -> f32
  // CHECK: "tir.sin"(%{{.*}}) : (f32) -> f32
  %10 = "tir.sin"(%x) : (f32) -> f32
  // CHECK: "tir.cos"(%{{.*}}) : (f32) -> f32
  %11 = "tir.cos"(%x) : (f32) -> f32
  // CHECK: "tir.tan"(%{{.*}}) : (f32) -> f32
  %12 = "tir.tan"(%x) : (f32) -> f32
  // CHECK: "tir.asin"(%{{.*}}) : (f32) -> f32
  %13 = "tir.asin"(%x) : (f32) -> f32
  // CHECK: "tir.acos"(%{{.*}}) : (f32) -> f32
  %14 = "tir.acos"(%x) : (f32) -> f32
  // CHECK: "tir.atan"(%{{.*}}) : (f32) -> f32
  %15 = "tir.atan"(%x) : (f32) -> f32
  // CHECK: "tir.sinh"(%{{.*}}) : (f32) -> f32
  %16 = "tir.sinh"(%x) : (f32) -> f32
  // CHECK: "tir.cosh"(%{{.*}}) : (f32) -> f32
  %17 = "tir.cosh"(%x) : (f32) -> f32
  // CHECK: "tir.tanh"(%{{.*}}) : (f32) -> f32
  %18 = "tir.tanh"(%x) : (f32) -> f32
  // CHECK: "tir.asinh"(%{{.*}}) : (f32) -> f32
  %19 = "tir.asinh"(%x) : (f32) -> f32
  // CHECK: "tir.acosh"(%{{.*}}) : (f32) -> f32
  %20 = "tir.acosh"(%x) : (f32) -> f32
  // CHECK: "tir.atanh"(%{{.*}}) : (f32) -> f32
  %21 = "tir.atanh"(%x) : (f32) -> f32
  // CHECK: "tir.erf"(%{{.*}}) : (f32) -> f32
  %22 = "tir.erf"(%x) : (f32) -> f32
  // CHECK: "tir.erfc"(%{{.*}}) : (f32) -> f32
  %23 = "tir.erfc"(%x) : (f32) -> f32
  // CHECK: "tir.floor"(%{{.*}}) : (f32) -> f32
  %24 = "tir.floor"(%x) : (f32) -> f32
  // CHECK: "tir.ceil"(%{{.*}}) : (f32) -> f32
  %25 = "tir.ceil"(%x) : (f32) -> f32
  // CHECK: "tir.trunc"(%{{.*}}) : (f32) -> f32
  %26 = "tir.trunc"(%x) : (f32) -> f32
  // CHECK: "tir.round"(%{{.*}}) : (f32) -> f32
  %27 = "tir.round"(%x) : (f32) -> f32
  // CHECK: "tir.roundeven"(%{{.*}}) : (f32) -> f32
  %28 = "tir.roundeven"(%x) : (f32) -> f32
  // CHECK: "tir.abs"(%{{.*}}) : (f32) -> f32
  %29 = "tir.abs"(%x) : (f32) -> f32
  // CHECK: "tir.sigmoid"(%{{.*}}) : (f32) -> f32
  %30 = "tir.sigmoid"(%x) : (f32) -> f32
  // CHECK: "tir.pow"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %31 = "tir.pow"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.atan2"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %32 = "tir.atan2"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.fmod"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %33 = "tir.fmod"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.remainder"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %34 = "tir.remainder"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.hypot"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %35 = "tir.hypot"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.copysign"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %36 = "tir.copysign"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.nextafter"(%{{.*}}, %{{.*}}) : (f32, f32) -> f32
  %37 = "tir.nextafter"(%x, %y) : (f32, f32) -> f32
  // CHECK: "tir.fma"(%{{.*}}, %{{.*}}, %{{.*}}) : (f32, f32, f32) -> f32
  %38 = "tir.fma"(%x, %y, %z) : (f32, f32, f32) -> f32
  // CHECK: "tir.ldexp"(%{{.*}}, %{{.*}}) : (f32, i32) -> f32
  %39 = "tir.ldexp"(%x, %n) : (f32, i32) -> f32
  // CHECK: "tir.isnan"(%{{.*}}) : (f32) -> i1
  %40 = "tir.isnan"(%x) : (f32) -> i1
  // CHECK: "tir.isinf"(%{{.*}}) : (f32) -> i1
  %41 = "tir.isinf"(%x) : (f32) -> i1
  // CHECK: "tir.isfinite"(%{{.*}}) : (f32) -> i1
  %42 = "tir.isfinite"(%x) : (f32) -> i1
  return
}

// CHECK-LABEL: func.func @float_vectors(
func.func @float_vectors(%v: vector<8xf16>, %w: vector<8xf16>, %u: vector<8xf16>, %m: vector<8xi32>) {
  // CHECK: "tir.exp"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %0 = "tir.exp"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.exp2"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %1 = "tir.exp2"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.expm1"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %2 = "tir.expm1"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.log"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %3 = "tir.log"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.log2"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %4 = "tir.log2"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.log10"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %5 = "tir.log10"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.log1p"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %6 = "tir.log1p"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.sqrt"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %7 = "tir.sqrt"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.rsqrt"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %8 = "tir.rsqrt"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.cbrt"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %9 = "tir.cbrt"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.sin"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %10 = "tir.sin"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.cos"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %11 = "tir.cos"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.tan"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %12 = "tir.tan"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.asin"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %13 = "tir.asin"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.acos"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %14 = "tir.acos"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.atan"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %15 = "tir.atan"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.sinh"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %16 = "tir.sinh"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.cosh"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %17 = "tir.cosh"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.tanh"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %18 = "tir.tanh"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.asinh"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %19 = "tir.asinh"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.acosh"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %20 = "tir.acosh"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.atanh"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %21 = "tir.atanh"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.erf"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %22 = "tir.erf"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.erfc"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %23 = "tir.erfc"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.floor"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %24 = "tir.floor"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.ceil"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %25 = "tir.ceil"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.trunc"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %26 = "tir.trunc"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.round"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %27 = "tir.round"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.roundeven"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %28 = "tir.roundeven"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.abs"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %29 = "tir.abs"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.sigmoid"(%{{.*}}) : (vector<8xf16>) -> vector<8xf16>
  %30 = "tir.sigmoid"(%v) : (vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.pow"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %31 = "tir.pow"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.atan2"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %32 = "tir.atan2"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.fmod"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %33 = "tir.fmod"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.remainder"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %34 = "tir.remainder"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.hypot"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %35 = "tir.hypot"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.copysign"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %36 = "tir.copysign"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.nextafter"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %37 = "tir.nextafter"(%v, %w) : (vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.fma"(%{{.*}}, %{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  %38 = "tir.fma"(%v, %w, %u) : (vector<8xf16>, vector<8xf16>, vector<8xf16>) -> vector<8xf16>
  // CHECK: "tir.ldexp"(%{{.*}}, %{{.*}}) : (vector<8xf16>, vector<8xi32>) -> vector<8xf16>
  %39 = "tir.ldexp"(%v, %m) : (vector<8xf16>, vector<8xi32>) -> vector<8xf16>
  // CHECK: "tir.isnan"(%{{.*}}) : (vector<8xf16>) -> vector<8xi1>
  %40 = "tir.isnan"(%v) : (vector<8xf16>) -> vector<8xi1>
  // CHECK: "tir.isinf"(%{{.*}}) : (vector<8xf16>) -> vector<8xi1>
  %41 = "tir.isinf"(%v) : (vector<8xf16>) -> vector<8xi1>
  // CHECK: "tir.isfinite"(%{{.*}}) : (vector<8xf16>) -> vector<8xi1>
  %42 = "tir.isfinite"(%v) : (vector<8xf16>) -> vector<8xi1>
  return
}

// CHECK-LABEL: func.func @integer_scalars(
func.func @integer_scalars(%i: i64, %j: i64, %k: i64) {
  // CHECK: "tir.popcount"(%{{.*}}) : (i64) -> i64
  %0 = "tir.popcount"(%i) : (i64) -> i64
  // CHECK: "tir.clz"(%{{.*}}) : (i64) -> i64
  %1 = "tir.clz"(%i) : (i64) -> i64
  // CHECK: "tir.ctz"(%{{.*}}) : (i64) -> i64
  %2 = "tir.ctz"(%i) : (i64) -> i64
  // CHECK: "tir.sat_adds"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %3 = "tir.sat_adds"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.sat_addu"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %4 = "tir.sat_addu"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.sat_subs"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %5 = "tir.sat_subs"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.sat_subu"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %6 = "tir.sat_subu"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.shl"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %7 = "tir.shl"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.shrs"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %8 = "tir.shrs"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.shru"(%{{.*}}, %{{.*}}) : (i64, i64) -> i64
  %9 = "tir.shru"(%i, %j) : (i64, i64) -> i64
  // CHECK: "tir.fixed_mul"(%{{.*}}, %{{.*}}, %{{.*}}) : (i64, i64, i64) -> i64
  %10 = "tir.fixed_mul"(%i, %j, %k) : (i64, i64, i64) -> i64
  return
}

// CHECK-LABEL: func.func @integer_vectors(
func.func @integer_vectors(%p: vector<4xi8>, %q: vector<4xi8>, %r: vector<4xi8>) {
  // CHECK: "tir.popcount"(%{{.*}}) : (vector<4xi8>) -> vector<4xi8>
  %0 = "tir.popcount"(%p) : (vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.clz"(%{{.*}}) : (vector<4xi8>) -> vector<4xi8>
  %1 = "tir.clz"(%p) : (vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.ctz"(%{{.*}}) : (vector<4xi8>) -> vector<4xi8>
  %2 = "tir.ctz"(%p) : (vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.sat_adds"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %3 = "tir.sat_adds"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.sat_addu"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %4 = "tir.sat_addu"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.sat_subs"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %5 = "tir.sat_subs"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.sat_subu"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %6 = "tir.sat_subu"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.shl"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %7 = "tir.shl"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.shrs"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %8 = "tir.shrs"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.shru"(%{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %9 = "tir.shru"(%p, %q) : (vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  // CHECK: "tir.fixed_mul"(%{{.*}}, %{{.*}}, %{{.*}}) : (vector<4xi8>, vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  %10 = "tir.fixed_mul"(%p, %q, %r) : (vector<4xi8>, vector<4xi8>, vector<4xi8>) -> vector<4xi8>
  return
}
