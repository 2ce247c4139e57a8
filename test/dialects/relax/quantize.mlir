// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Quantization.

// CHECK-LABEL: func.func @quantize_tensor(
func.func @quantize_tensor(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>, %scale: tensor<f32>, %zero_point: tensor<ui8>) -> tensor<?x3xui8, #relax.dims<["b", 3]>> {
  // CHECK: "relax.quantize"(%{{.*}}, %{{.*}}, %{{.*}}) {dtype = ui8} :
  %0 = "relax.quantize"(%x, %scale, %zero_point) {dtype = ui8} : (tensor<?x3xf32, #relax.dims<["b", 3]>>, tensor<f32>, tensor<ui8>) -> tensor<?x3xui8, #relax.dims<["b", 3]>>
  return %0 : tensor<?x3xui8, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @quantize_symmetric(
func.func @quantize_symmetric(%x: tensor<?x3xf16, #relax.dims<["b", 3]>>, %scale: tensor<f16>) -> tensor<?x3xi8, #relax.dims<["b", 3]>> {
  // CHECK: "relax.quantize"(%{{.*}}, %{{.*}}) {dtype = i8} :
  %0 = "relax.quantize"(%x, %scale) {dtype = i8} : (tensor<?x3xf16, #relax.dims<["b", 3]>>, tensor<f16>) -> tensor<?x3xi8, #relax.dims<["b", 3]>>
  return %0 : tensor<?x3xi8, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @quantize_channels(
func.func @quantize_channels(%x: tensor<?x3x?xf32, #relax.dims<["b", 3, "h"]>>, %scale: tensor<3xf32>, %zero_point: tensor<3xi8>) -> tensor<?x3x?xi8, #relax.dims<["b", 3, "h"]>> {
  // CHECK: "relax.quantize"(%{{.*}}, %{{.*}}, %{{.*}}) {dtype = i8} :
  %0 = "relax.quantize"(%x, %scale, %zero_point) {dtype = i8} : (tensor<?x3x?xf32, #relax.dims<["b", 3, "h"]>>, tensor<3xf32>, tensor<3xi8>) -> tensor<?x3x?xi8, #relax.dims<["b", 3, "h"]>>
  return %0 : tensor<?x3x?xi8, #relax.dims<["b", 3, "h"]>>
}

// CHECK-LABEL: func.func @quantize_blocks(
func.func @quantize_blocks(%x: tensor<64x8xf32>, %scale: tensor<2x8xf32>) -> tensor<64x8xi4> {
  // CHECK: "relax.quantize"(%{{.*}}, %{{.*}}) {axis = 0 : i64, block = 32 : i64, dtype = i4} :
  %0 = "relax.quantize"(%x, %scale) {axis = 0 : i64, block = 32 : i64, dtype = i4} : (tensor<64x8xf32>, tensor<2x8xf32>) -> tensor<64x8xi4>
  return %0 : tensor<64x8xi4>
}

// CHECK-LABEL: func.func @dequantize_tensor(
func.func @dequantize_tensor(%x: tensor<?x3xui8, #relax.dims<["b", 3]>>, %scale: tensor<f32>, %zero_point: tensor<ui8>) -> tensor<?x3xf32, #relax.dims<["b", 3]>> {
  // CHECK: "relax.dequantize"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.dequantize"(%x, %scale, %zero_point) : (tensor<?x3xui8, #relax.dims<["b", 3]>>, tensor<f32>, tensor<ui8>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  return %0 : tensor<?x3xf32, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @dequantize_channels(
func.func @dequantize_channels(%x: tensor<4x3xi32>, %scale: tensor<4xf32>) -> tensor<4x3xf32> {
  // CHECK: "relax.dequantize"(%{{.*}}, %{{.*}}) {axis = 0 : i64} :
  %0 = "relax.dequantize"(%x, %scale) {axis = 0 : i64} : (tensor<4x3xi32>, tensor<4xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @dequantize_blocks(
func.func @dequantize_blocks(%x: tensor<?x100xi4, #relax.dims<["n", 100]>>, %scale: tensor<?x4xf16, #relax.dims<["n", 4]>>) -> tensor<?x100xf16, #relax.dims<["n", 100]>> {
  // CHECK: "relax.dequantize"(%{{.*}}, %{{.*}}) {block = 32 : i64, dtype = f16} :
  %0 = "relax.dequantize"(%x, %scale) {block = 32 : i64, dtype = f16} : (tensor<?x100xi4, #relax.dims<["n", 100]>>, tensor<?x4xf16, #relax.dims<["n", 4]>>) -> tensor<?x100xf16, #relax.dims<["n", 100]>>
  return %0 : tensor<?x100xf16, #relax.dims<["n", 100]>>
}

// CHECK-LABEL: func.func @dequantize_float8(
func.func @dequantize_float8(%x: tensor<2xf8E4M3FN>, %scale: tensor<f32>) -> tensor<2xf32> {
  // CHECK: "relax.dequantize"(%{{.*}}, %{{.*}}) :
  %0 = "relax.dequantize"(%x, %scale) : (tensor<2xf8E4M3FN>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
