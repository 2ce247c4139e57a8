// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Conversions.

// CHECK-LABEL: func.func @float_to_int
// CHECK:       relax.call_tir{{.*}}callee = @cast
// CHECK:       func.func private @cast
// CHECK:       arith.fptosi
// CHECK:       arith.trunci
// CHECK:       domain = [4]{{.*}}name = "cast"
func.func @float_to_int(%arg0: tensor<4xf32>) -> tensor<4xi8> {
  %0 = "relax.cast"(%arg0) {dtype = i8} : (tensor<4xf32>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}

// -----

// CHECK-LABEL: func.func @unsigned_to_float
// CHECK:       relax.call_tir{{.*}}callee = @cast
// CHECK:       func.func private @cast
// CHECK:       arith.uitofp
// CHECK:       domain = [4]{{.*}}name = "cast"
func.func @unsigned_to_float(%arg0: tensor<4xui8>) -> tensor<4xf16> {
  %0 = "relax.cast"(%arg0) {dtype = f16} : (tensor<4xui8>) -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// -----

// CHECK-LABEL: func.func @float_to_bool
// CHECK:       relax.call_tir{{.*}}callee = @cast
// CHECK:       func.func private @cast
// CHECK:       arith.cmpf une
// CHECK:       arith.extui
// CHECK:       domain = [4]{{.*}}name = "cast"
func.func @float_to_bool(%arg0: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.cast"(%arg0) {dtype = i1} : (tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// -----

// CHECK-LABEL: func.func @bool_to_int
// CHECK:       relax.call_tir{{.*}}callee = @cast
// CHECK:       func.func private @cast
// CHECK:       arith.cmpi ne
// CHECK:       arith.extui
// CHECK:       domain = [4]{{.*}}name = "cast"
func.func @bool_to_int(%arg0: tensor<4xi1>) -> tensor<4xi64> {
  %0 = "relax.cast"(%arg0) {dtype = i64} : (tensor<4xi1>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

// CHECK-LABEL: func.func @double_to_bf16
// CHECK:       relax.call_tir{{.*}}callee = @cast
// CHECK:       func.func private @cast
// CHECK:       arith.truncf
// CHECK:       arith.truncf
// CHECK:       domain = [4]{{.*}}name = "cast"
func.func @double_to_bf16(%arg0: tensor<4xf64>) -> tensor<4xbf16> {
  %0 = "relax.cast"(%arg0) {dtype = bf16} : (tensor<4xf64>) -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----

// CHECK-LABEL: func.func @sign_extended
// CHECK:       relax.call_tir{{.*}}callee = @cast
// CHECK:       func.func private @cast
// CHECK:       arith.extsi
// CHECK:       domain = [4]{{.*}}name = "cast"
func.func @sign_extended(%arg0: tensor<4xi32>) -> tensor<4xui64> {
  %0 = "relax.cast"(%arg0) {dtype = ui64} : (tensor<4xi32>) -> tensor<4xui64>
  return %0 : tensor<4xui64>
}

// -----

// CHECK-LABEL: func.func @same_bits
// CHECK:       relax.call_tir{{.*}}callee = @bitcast
// CHECK:       func.func private @bitcast
// CHECK:       arith.bitcast {{.*}} : f32 to i32
func.func @same_bits(%arg0: tensor<4xf32>) -> tensor<4xi32> {
  %0 = "relax.bitcast"(%arg0) {dtype = i32} : (tensor<4xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
