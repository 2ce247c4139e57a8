// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Rows are reduced, then mapped back over.

// CHECK-LABEL: func.func @test_softmax
// CHECK:       relax.call_tir{{.*}}callee = @softmax
// CHECK:       func.func private @softmax
// CHECK:       arith.maximumf
// CHECK:       domain = [4, 16]{{.*}}name = "softmax_max"
// CHECK:       arith.subf
// CHECK:       tir.exp
// CHECK:       domain = [4, 16]{{.*}}name = "softmax_exp"
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "softmax_sum"
// CHECK:       arith.divf
// CHECK:       domain = [4, 16]{{.*}}name = "softmax"
func.func @test_softmax(%arg0: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = "relax.softmax"(%arg0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// Another axis, and narrow floats: computed in f32.
// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2, d1)>
// CHECK:       affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @softmax_f16
// CHECK:       relax.call_tir{{.*}}callee = @softmax
// CHECK:       func.func private @softmax
// CHECK:       arith.extf
// CHECK:       arith.maximumf
// CHECK:       domain = [2, 5, 3]{{.*}}name = "softmax_max"
// CHECK:       arith.extf
// CHECK:       arith.subf
// CHECK:       tir.exp
// CHECK:       domain = [2, 3, 5]{{.*}}name = "softmax_exp"
// CHECK:       arith.addf
// CHECK:       domain = [2, 5, 3]{{.*}}name = "softmax_sum"
// CHECK:       arith.divf
// CHECK:       arith.truncf
// CHECK:       domain = [2, 3, 5]{{.*}}name = "softmax"
func.func @softmax_f16(%arg0: tensor<2x3x5xf16>) -> tensor<2x3x5xf16> {
  %0 = "relax.softmax"(%arg0) {axis = 1 : i64} : (tensor<2x3x5xf16>) -> tensor<2x3x5xf16>
  return %0 : tensor<2x3x5xf16>
}

// -----

// CHECK-LABEL: func.func @test_log_softmax
// CHECK:       relax.call_tir{{.*}}callee = @log_softmax
// CHECK:       func.func private @log_softmax
// CHECK:       arith.maximumf
// CHECK:       domain = [4, 16]{{.*}}name = "softmax_max"
// CHECK:       arith.subf
// CHECK:       tir.exp
// CHECK:       arith.addf
// CHECK:       domain = [4, 16]{{.*}}name = "softmax_sum"
// CHECK:       tir.log
// CHECK:       domain = [4]{{.*}}name = "softmax_shift"
// CHECK:       arith.subf
// CHECK:       arith.subf
// CHECK:       domain = [4, 16]{{.*}}name = "log_softmax"
func.func @test_log_softmax(%arg0: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = "relax.log_softmax"(%arg0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// CHECK-LABEL: func.func @test_hardmax
// CHECK:       relax.call_tir{{.*}}callee = @hardmax
// CHECK:       func.func private @hardmax
// CHECK:       arith.maximumf
// CHECK:       domain = [4, 16]{{.*}}name = "argmax_value"
// CHECK:       arith.cmpf oeq
// CHECK:       arith.cmpf une
// CHECK:       arith.ori
// CHECK:       arith.index_cast
// CHECK:       arith.select
// CHECK:       arith.minsi
// CHECK:       domain = [4, 16]{{.*}}name = "argmax"
// CHECK:       arith.extsi
// CHECK:       domain = [4]{{.*}}name = "place"
// CHECK:       arith.index_cast
// CHECK:       arith.cmpi eq
// CHECK:       arith.select
// CHECK:       domain = [4, 16]{{.*}}name = "hardmax"
func.func @test_hardmax(%arg0: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = "relax.hardmax"(%arg0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}
