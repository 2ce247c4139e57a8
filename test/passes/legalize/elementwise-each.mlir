// RUN: mirlo-opt %s --legalize | FileCheck %s

// Elementwise operators: the one scalar operation that each becomes. The prim functions stand after all graphs.
// CHECK-LABEL: func.func private @exp2(
// CHECK:         "tir.exp2"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @expm1(
// CHECK:         "tir.expm1"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @log(
// CHECK:         "tir.log"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @log2(
// CHECK:         "tir.log2"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @log10(
// CHECK:         "tir.log10"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @log1p(
// CHECK:         "tir.log1p"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @sqrt(
// CHECK:         "tir.sqrt"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @rsqrt(
// CHECK:         "tir.rsqrt"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @cbrt(
// CHECK:         "tir.cbrt"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @sin(
// CHECK:         "tir.sin"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @cos(
// CHECK:         "tir.cos"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @tan(
// CHECK:         "tir.tan"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @asin(
// CHECK:         "tir.asin"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @acos(
// CHECK:         "tir.acos"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @atan(
// CHECK:         "tir.atan"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @sinh(
// CHECK:         "tir.sinh"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @cosh(
// CHECK:         "tir.cosh"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @tanh(
// CHECK:         "tir.tanh"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @asinh(
// CHECK:         "tir.asinh"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @acosh(
// CHECK:         "tir.acosh"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @atanh(
// CHECK:         "tir.atanh"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @erf(
// CHECK:         "tir.erf"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @erfc(
// CHECK:         "tir.erfc"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @floor(
// CHECK:         "tir.floor"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @ceil(
// CHECK:         "tir.ceil"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @trunc(
// CHECK:         "tir.trunc"(%{{.*}}) : (f32) -> f32
// CHECK-LABEL: func.func private @isinf(
// CHECK:         "tir.isinf"(%{{.*}}) : (f32) -> i1
// CHECK-LABEL: func.func private @isfinite(
// CHECK:         "tir.isfinite"(%{{.*}}) : (f32) -> i1
// CHECK-LABEL: func.func private @subtract(
// CHECK:         arith.subf
// CHECK-LABEL: func.func private @multiply(
// CHECK:         arith.mulf
// CHECK-LABEL: func.func private @minimum(
// CHECK:         arith.minimumf
// CHECK-LABEL: func.func private @logical_and(
// CHECK:         arith.andi %{{.*}} : i1
// CHECK-LABEL: func.func private @logical_or(
// CHECK:         arith.ori %{{.*}} : i1
// CHECK-LABEL: func.func private @logical_xor(
// CHECK:         arith.xori %{{.*}} : i1
// CHECK-LABEL: func.func private @bitwise_and(
// CHECK:         arith.andi %{{.*}} : i32
// CHECK-LABEL: func.func private @bitwise_or(
// CHECK:         arith.ori %{{.*}} : i32
// CHECK-LABEL: func.func private @bitwise_xor(
// CHECK:         arith.xori %{{.*}} : i32
// CHECK-LABEL: func.func private @shift_left(
// CHECK:         {{arith.shli|tir.shl}}
// CHECK-LABEL: func.func private @equal(
// CHECK:         arith.cmpf oeq, %{{.*}} : f32
// CHECK-LABEL: func.func private @not_equal(
// CHECK:         arith.cmpf une, %{{.*}} : f32
// CHECK-LABEL: func.func private @less_equal(
// CHECK:         arith.cmpf ole, %{{.*}} : f32
// CHECK-LABEL: func.func private @greater(
// CHECK:         arith.cmpf ogt, %{{.*}} : f32
// CHECK-LABEL: func.func private @greater_equal(
// CHECK:         arith.cmpf oge, %{{.*}} : f32

func.func @graph_exp2(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp2"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_expm1(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.expm1"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_log(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.log"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_log2(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.log2"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_log10(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.log10"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_log1p(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.log1p"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_sqrt(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.sqrt"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_rsqrt(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.rsqrt"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_cbrt(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.cbrt"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_sin(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.sin"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_cos(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.cos"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_tan(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.tan"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_asin(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.asin"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_acos(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.acos"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_atan(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.atan"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_sinh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.sinh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_cosh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.cosh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_asinh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.asinh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_acosh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.acosh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_atanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.atanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_erf(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.erf"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_erfc(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.erfc"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_floor(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.floor"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_ceil(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.ceil"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_trunc(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.trunc"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_isinf(%x: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.isinf"(%x) : (tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_isfinite(%x: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.isfinite"(%x) : (tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_subtract(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.subtract"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_multiply(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.multiply"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_minimum(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.minimum"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @graph_logical_and(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "relax.logical_and"(%x, %y) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_logical_or(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "relax.logical_or"(%x, %y) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_logical_xor(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "relax.logical_xor"(%x, %y) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_bitwise_and(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "relax.bitwise_and"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

func.func @graph_bitwise_or(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "relax.bitwise_or"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

func.func @graph_bitwise_xor(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "relax.bitwise_xor"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

func.func @graph_shift_left(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "relax.shift_left"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

func.func @graph_equal(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.equal"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_not_equal(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.not_equal"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_less_equal(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.less_equal"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_greater(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.greater"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

func.func @graph_greater_equal(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "relax.greater_equal"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}
