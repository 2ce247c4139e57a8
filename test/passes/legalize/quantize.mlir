// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Rounded half to even, then saturated.

// CHECK-LABEL: func.func @test_quantize
// CHECK:       relax.call_tir{{.*}}callee = @quantize
// CHECK:       func.func private @quantize
// CHECK:       arith.divf
// CHECK:       tir.roundeven
// CHECK:       arith.uitofp
// CHECK:       arith.addf
// CHECK:       arith.maximumf
// CHECK:       arith.minimumf
// CHECK:       arith.fptosi
// CHECK:       arith.trunci
// CHECK:       domain = [2, 4]{{.*}}name = "quantize"
func.func @test_quantize(%arg0: tensor<2x4xf32>, %arg1: tensor<f32>, %arg2: tensor<ui8>) -> tensor<2x4xui8> {
  %0 = "relax.quantize"(%arg0, %arg1, %arg2) {dtype = ui8} : (tensor<2x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x4xui8>
  return %0 : tensor<2x4xui8>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @per_axis
// CHECK:       relax.call_tir{{.*}}callee = @quantize
// CHECK:       func.func private @quantize
// CHECK:       arith.divf
// CHECK:       tir.roundeven
// CHECK:       arith.maximumf
// CHECK:       arith.minimumf
// CHECK:       arith.fptosi
// CHECK:       arith.trunci
// CHECK:       domain = [2, 4]{{.*}}name = "quantize"
func.func @per_axis(%arg0: tensor<2x4xf32>, %arg1: tensor<4xf32>) -> tensor<2x4xi8> {
  %0 = "relax.quantize"(%arg0, %arg1) {dtype = i8} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xi8>
  return %0 : tensor<2x4xi8>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, d1 floordiv 2)>
// CHECK-LABEL: func.func @test_dequantize
// CHECK:       relax.call_tir{{.*}}callee = @dequantize
// CHECK:       func.func private @dequantize
// CHECK:       arith.extsi
// CHECK:       arith.extsi
// CHECK:       arith.subi
// CHECK:       arith.sitofp
// CHECK:       arith.mulf
// CHECK:       domain = [2, 4]{{.*}}name = "dequantize"
func.func @test_dequantize(%arg0: tensor<2x4xi8>, %arg1: tensor<2x2xf32>, %arg2: tensor<2x2xi8>) -> tensor<2x4xf32> {
  %0 = "relax.dequantize"(%arg0, %arg1, %arg2) {block = 2 : i64} : (tensor<2x4xi8>, tensor<2x2xf32>, tensor<2x2xi8>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
