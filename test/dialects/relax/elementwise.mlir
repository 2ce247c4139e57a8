// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Elementwise operators: unary, tests, binary with broadcasting, comparisons, where.

// CHECK-LABEL: func.func @unary_float(
func.func @unary_float(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK: "relax.exp"(%{{.*}}) :
  %0 = "relax.exp"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.exp2"(%{{.*}}) :
  %1 = "relax.exp2"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.expm1"(%{{.*}}) :
  %2 = "relax.expm1"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.log"(%{{.*}}) :
  %3 = "relax.log"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.log2"(%{{.*}}) :
  %4 = "relax.log2"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.log10"(%{{.*}}) :
  %5 = "relax.log10"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.log1p"(%{{.*}}) :
  %6 = "relax.log1p"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.sqrt"(%{{.*}}) :
  %7 = "relax.sqrt"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.rsqrt"(%{{.*}}) :
  %8 = "relax.rsqrt"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.cbrt"(%{{.*}}) :
  %9 = "relax.cbrt"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.sin"(%{{.*}}) :
  %10 = "relax.sin"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.cos"(%{{.*}}) :
  %11 = "relax.cos"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.tan"(%{{.*}}) :
  %12 = "relax.tan"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.asin"(%{{.*}}) :
  %13 = "relax.asin"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.acos"(%{{.*}}) :
  %14 = "relax.acos"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.atan"(%{{.*}}) :
  %15 = "relax.atan"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.sinh"(%{{.*}}) :
  %16 = "relax.sinh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.cosh"(%{{.*}}) :
  %17 = "relax.cosh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.tanh"(%{{.*}}) :
  %18 = "relax.tanh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.asinh"(%{{.*}}) :
  %19 = "relax.asinh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.acosh"(%{{.*}}) :
  %20 = "relax.acosh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.atanh"(%{{.*}}) :
  %21 = "relax.atanh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.erf"(%{{.*}}) :
  %22 = "relax.erf"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.erfc"(%{{.*}}) :
  %23 = "relax.erfc"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.floor"(%{{.*}}) :
  %24 = "relax.floor"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.ceil"(%{{.*}}) :
  %25 = "relax.ceil"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.trunc"(%{{.*}}) :
  %26 = "relax.trunc"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.round"(%{{.*}}) :
  %27 = "relax.round"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: "relax.reciprocal"(%{{.*}}) :
  %28 = "relax.reciprocal"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %28 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @unary_number(
func.func @unary_number(%x: tensor<?xi32, #relax.dims<["n"]>>) -> tensor<?xi32, #relax.dims<["n"]>> {
  // CHECK: "relax.abs"(%{{.*}}) :
  %0 = "relax.abs"(%x) : (tensor<?xi32, #relax.dims<["n"]>>) -> tensor<?xi32, #relax.dims<["n"]>>
  // CHECK: "relax.negative"(%{{.*}}) :
  %1 = "relax.negative"(%x) : (tensor<?xi32, #relax.dims<["n"]>>) -> tensor<?xi32, #relax.dims<["n"]>>
  // CHECK: "relax.sign"(%{{.*}}) :
  %2 = "relax.sign"(%x) : (tensor<?xi32, #relax.dims<["n"]>>) -> tensor<?xi32, #relax.dims<["n"]>>
  // CHECK: "relax.square"(%{{.*}}) :
  %3 = "relax.square"(%x) : (tensor<?xi32, #relax.dims<["n"]>>) -> tensor<?xi32, #relax.dims<["n"]>>
  return %3 : tensor<?xi32, #relax.dims<["n"]>>
}

// CHECK-LABEL: func.func @unary_bool(
func.func @unary_bool(%x: tensor<4xi1>) -> tensor<4xi1> {
  // CHECK: "relax.logical_not"(%{{.*}}) :
  %0 = "relax.logical_not"(%x) : (tensor<4xi1>) -> tensor<4xi1>
  // CHECK: "relax.bitwise_not"(%{{.*}}) :
  %1 = "relax.bitwise_not"(%x) : (tensor<4xi1>) -> tensor<4xi1>
  return %1 : tensor<4xi1>
}

// CHECK-LABEL: func.func @bitwise_not_unsigned(
func.func @bitwise_not_unsigned(%x: tensor<4xui8>) -> tensor<4xui8> {
  // CHECK: "relax.bitwise_not"(%{{.*}}) :
  %0 = "relax.bitwise_not"(%x) : (tensor<4xui8>) -> tensor<4xui8>
  return %0 : tensor<4xui8>
}

// CHECK-LABEL: func.func @tests(
func.func @tests(%x: tensor<?x3xf16, #relax.dims<["b", 3]>>) -> tensor<?x3xi1, #relax.dims<["b", 3]>> {
  // CHECK: "relax.isnan"(%{{.*}}) :
  %0 = "relax.isnan"(%x) : (tensor<?x3xf16, #relax.dims<["b", 3]>>) -> tensor<?x3xi1, #relax.dims<["b", 3]>>
  // CHECK: "relax.isinf"(%{{.*}}) :
  %1 = "relax.isinf"(%x) : (tensor<?x3xf16, #relax.dims<["b", 3]>>) -> tensor<?x3xi1, #relax.dims<["b", 3]>>
  // CHECK: "relax.isfinite"(%{{.*}}) :
  %2 = "relax.isfinite"(%x) : (tensor<?x3xf16, #relax.dims<["b", 3]>>) -> tensor<?x3xi1, #relax.dims<["b", 3]>>
  return %2 : tensor<?x3xi1, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @binary_float(
func.func @binary_float(%lhs: tensor<2x1x3xf32>, %rhs: tensor<4x3xf32>) -> tensor<2x4x3xf32> {
  // CHECK: "relax.add"(%{{.*}}, %{{.*}}) :
  %0 = "relax.add"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.subtract"(%{{.*}}, %{{.*}}) :
  %1 = "relax.subtract"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.multiply"(%{{.*}}, %{{.*}}) :
  %2 = "relax.multiply"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.divide"(%{{.*}}, %{{.*}}) :
  %3 = "relax.divide"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.floor_divide"(%{{.*}}, %{{.*}}) :
  %4 = "relax.floor_divide"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.mod"(%{{.*}}, %{{.*}}) :
  %5 = "relax.mod"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.fmod"(%{{.*}}, %{{.*}}) :
  %6 = "relax.fmod"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.power"(%{{.*}}, %{{.*}}) :
  %7 = "relax.power"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.maximum"(%{{.*}}, %{{.*}}) :
  %8 = "relax.maximum"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.minimum"(%{{.*}}, %{{.*}}) :
  %9 = "relax.minimum"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: "relax.atan2"(%{{.*}}, %{{.*}}) :
  %10 = "relax.atan2"(%lhs, %rhs) : (tensor<2x1x3xf32>, tensor<4x3xf32>) -> tensor<2x4x3xf32>
  return %10 : tensor<2x4x3xf32>
}

// CHECK-LABEL: func.func @binary_integer(
func.func @binary_integer(%lhs: tensor<?xi64, #relax.dims<["n"]>>, %rhs: tensor<1xi64>) -> tensor<?xi64, #relax.dims<["n"]>> {
  // CHECK: "relax.bitwise_and"(%{{.*}}, %{{.*}}) :
  %0 = "relax.bitwise_and"(%lhs, %rhs) : (tensor<?xi64, #relax.dims<["n"]>>, tensor<1xi64>) -> tensor<?xi64, #relax.dims<["n"]>>
  // CHECK: "relax.bitwise_or"(%{{.*}}, %{{.*}}) :
  %1 = "relax.bitwise_or"(%lhs, %rhs) : (tensor<?xi64, #relax.dims<["n"]>>, tensor<1xi64>) -> tensor<?xi64, #relax.dims<["n"]>>
  // CHECK: "relax.bitwise_xor"(%{{.*}}, %{{.*}}) :
  %2 = "relax.bitwise_xor"(%lhs, %rhs) : (tensor<?xi64, #relax.dims<["n"]>>, tensor<1xi64>) -> tensor<?xi64, #relax.dims<["n"]>>
  // CHECK: "relax.shift_left"(%{{.*}}, %{{.*}}) :
  %3 = "relax.shift_left"(%lhs, %rhs) : (tensor<?xi64, #relax.dims<["n"]>>, tensor<1xi64>) -> tensor<?xi64, #relax.dims<["n"]>>
  // CHECK: "relax.shift_right"(%{{.*}}, %{{.*}}) :
  %4 = "relax.shift_right"(%lhs, %rhs) : (tensor<?xi64, #relax.dims<["n"]>>, tensor<1xi64>) -> tensor<?xi64, #relax.dims<["n"]>>
  return %4 : tensor<?xi64, #relax.dims<["n"]>>
}

// CHECK-LABEL: func.func @binary_unsigned(
func.func @binary_unsigned(%lhs: tensor<2xui8>, %rhs: tensor<2xui8>) -> tensor<2xui8> {
  // CHECK: "relax.add"(%{{.*}}, %{{.*}}) :
  %0 = "relax.add"(%lhs, %rhs) : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xui8>
  // CHECK: "relax.shift_right"(%{{.*}}, %{{.*}}) :
  %1 = "relax.shift_right"(%lhs, %rhs) : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xui8>
  // CHECK: "relax.mod"(%{{.*}}, %{{.*}}) :
  %2 = "relax.mod"(%lhs, %rhs) : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xui8>
  return %2 : tensor<2xui8>
}

// CHECK-LABEL: func.func @binary_bool(
func.func @binary_bool(%lhs: tensor<2x3xi1>, %rhs: tensor<i1>) -> tensor<2x3xi1> {
  // CHECK: "relax.logical_and"(%{{.*}}, %{{.*}}) :
  %0 = "relax.logical_and"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  // CHECK: "relax.logical_or"(%{{.*}}, %{{.*}}) :
  %1 = "relax.logical_or"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  // CHECK: "relax.logical_xor"(%{{.*}}, %{{.*}}) :
  %2 = "relax.logical_xor"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  // CHECK: "relax.bitwise_and"(%{{.*}}, %{{.*}}) :
  %3 = "relax.bitwise_and"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  // CHECK: "relax.bitwise_or"(%{{.*}}, %{{.*}}) :
  %4 = "relax.bitwise_or"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  // CHECK: "relax.bitwise_xor"(%{{.*}}, %{{.*}}) :
  %5 = "relax.bitwise_xor"(%lhs, %rhs) : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  return %5 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @symbolic_broadcast(
func.func @symbolic_broadcast(%lhs: tensor<?x1xf32, #relax.dims<["batch", 1]>>, %rhs: tensor<?x?xf32, #relax.dims<["batch", "2*n + 1"]>>) -> tensor<?x?xf32, #relax.dims<["batch", "2*n + 1"]>> {
  // CHECK: "relax.add"(%{{.*}}, %{{.*}}) :
  %0 = "relax.add"(%lhs, %rhs) : (tensor<?x1xf32, #relax.dims<["batch", 1]>>, tensor<?x?xf32, #relax.dims<["batch", "2*n + 1"]>>) -> tensor<?x?xf32, #relax.dims<["batch", "2*n + 1"]>>
  return %0 : tensor<?x?xf32, #relax.dims<["batch", "2*n + 1"]>>
}

// CHECK-LABEL: func.func @unknown_broadcast(
func.func @unknown_broadcast(%lhs: tensor<?x1xf32, #relax.dims<["?", 1]>>, %rhs: tensor<8x?xf32, #relax.dims<[8, "n"]>>) -> tensor<8x?xf32, #relax.dims<[8, "n"]>> {
  // CHECK: "relax.multiply"(%{{.*}}, %{{.*}}) :
  %0 = "relax.multiply"(%lhs, %rhs) : (tensor<?x1xf32, #relax.dims<["?", 1]>>, tensor<8x?xf32, #relax.dims<[8, "n"]>>) -> tensor<8x?xf32, #relax.dims<[8, "n"]>>
  return %0 : tensor<8x?xf32, #relax.dims<[8, "n"]>>
}

// CHECK-LABEL: func.func @compare(
func.func @compare(%lhs: tensor<2x3xf32>, %rhs: tensor<3xf32>) -> tensor<2x3xi1> {
  // CHECK: "relax.equal"(%{{.*}}, %{{.*}}) :
  %0 = "relax.equal"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  // CHECK: "relax.not_equal"(%{{.*}}, %{{.*}}) :
  %1 = "relax.not_equal"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  // CHECK: "relax.less"(%{{.*}}, %{{.*}}) :
  %2 = "relax.less"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  // CHECK: "relax.less_equal"(%{{.*}}, %{{.*}}) :
  %3 = "relax.less_equal"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  // CHECK: "relax.greater"(%{{.*}}, %{{.*}}) :
  %4 = "relax.greater"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  // CHECK: "relax.greater_equal"(%{{.*}}, %{{.*}}) :
  %5 = "relax.greater_equal"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  return %5 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @compare_bool(
func.func @compare_bool(%lhs: tensor<?xi1, #relax.dims<["b"]>>, %rhs: tensor<1xi1>) -> tensor<?xi1, #relax.dims<["b"]>> {
  // CHECK: "relax.equal"(%{{.*}}, %{{.*}}) :
  %0 = "relax.equal"(%lhs, %rhs) : (tensor<?xi1, #relax.dims<["b"]>>, tensor<1xi1>) -> tensor<?xi1, #relax.dims<["b"]>>
  return %0 : tensor<?xi1, #relax.dims<["b"]>>
}

// CHECK-LABEL: func.func @where_broadcast(
func.func @where_broadcast(%condition: tensor<4x1xi1>, %x: tensor<1x5xf32>, %y: tensor<f32>) -> tensor<4x5xf32> {
  // CHECK: "relax.where"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.where"(%condition, %x, %y) : (tensor<4x1xi1>, tensor<1x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @where_symbolic(
func.func @where_symbolic(%condition: tensor<?x1xi1, #relax.dims<["b", 1]>>, %x: tensor<?x?xi64, #relax.dims<["b", "n"]>>, %y: tensor<?xi64, #relax.dims<["n"]>>) -> tensor<?x?xi64, #relax.dims<["b", "n"]>> {
  // CHECK: "relax.where"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.where"(%condition, %x, %y) : (tensor<?x1xi1, #relax.dims<["b", 1]>>, tensor<?x?xi64, #relax.dims<["b", "n"]>>, tensor<?xi64, #relax.dims<["n"]>>) -> tensor<?x?xi64, #relax.dims<["b", "n"]>>
  return %0 : tensor<?x?xi64, #relax.dims<["b", "n"]>>
}
