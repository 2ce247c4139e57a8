// fmod is a long division: as many steps as the lane with the longest quotient needs, most often one.
// RUN: mirlo-opt %s --lower-intrinsics | FileCheck %s

// CHECK-LABEL: func.func @fmod(
// CHECK: %[[MOST:.*]] = vector.reduction <maxsi>, %{{.*}} : vector<16xi32> into i32
// CHECK: scf.for
// CHECK: math.trunc
// CHECK: scf.yield
func.func @fmod(%x: vector<16xf32>, %y: vector<16xf32>) -> vector<16xf32> {
  %0 = "tir.fmod"(%x, %y) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func.func @of_scalars(
// CHECK-NOT: vector
// CHECK: scf.for
// CHECK: return
func.func @of_scalars(%x: f64, %y: f64) -> f64 {
  %0 = "tir.remainder"(%x, %y) : (f64, f64) -> f64
  return %0 : f64
}
