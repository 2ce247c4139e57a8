// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Conversion of element types.

// CHECK-LABEL: func.func @cast_types(
func.func @cast_types(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xindex, #relax.dims<["b", 3]>> {
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f64} :
  %0 = "relax.cast"(%x) {dtype = f64} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf64, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f32} :
  %1 = "relax.cast"(%x) {dtype = f32} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f16} :
  %2 = "relax.cast"(%x) {dtype = f16} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf16, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = bf16} :
  %3 = "relax.cast"(%x) {dtype = bf16} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xbf16, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f8E4M3FN} :
  %4 = "relax.cast"(%x) {dtype = f8E4M3FN} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf8E4M3FN, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f8E4M3FNUZ} :
  %5 = "relax.cast"(%x) {dtype = f8E4M3FNUZ} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf8E4M3FNUZ, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f8E5M2} :
  %6 = "relax.cast"(%x) {dtype = f8E5M2} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf8E5M2, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f8E5M2FNUZ} :
  %7 = "relax.cast"(%x) {dtype = f8E5M2FNUZ} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf8E5M2FNUZ, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f8E8M0FNU} :
  %8 = "relax.cast"(%x) {dtype = f8E8M0FNU} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf8E8M0FNU, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f4E2M1FN} :
  %9 = "relax.cast"(%x) {dtype = f4E2M1FN} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf4E2M1FN, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i64} :
  %10 = "relax.cast"(%x) {dtype = i64} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi64, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i32} :
  %11 = "relax.cast"(%x) {dtype = i32} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi32, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i16} :
  %12 = "relax.cast"(%x) {dtype = i16} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi16, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i8} :
  %13 = "relax.cast"(%x) {dtype = i8} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi8, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i4} :
  %14 = "relax.cast"(%x) {dtype = i4} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi4, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i2} :
  %15 = "relax.cast"(%x) {dtype = i2} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi2, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = ui64} :
  %16 = "relax.cast"(%x) {dtype = ui64} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xui64, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = ui32} :
  %17 = "relax.cast"(%x) {dtype = ui32} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xui32, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = ui16} :
  %18 = "relax.cast"(%x) {dtype = ui16} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xui16, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = ui8} :
  %19 = "relax.cast"(%x) {dtype = ui8} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xui8, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = ui4} :
  %20 = "relax.cast"(%x) {dtype = ui4} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xui4, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = ui2} :
  %21 = "relax.cast"(%x) {dtype = ui2} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xui2, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = i1} :
  %22 = "relax.cast"(%x) {dtype = i1} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xi1, #relax.dims<["b", 3]>>
  // CHECK: "relax.cast"(%{{.*}}) {dtype = index} :
  %23 = "relax.cast"(%x) {dtype = index} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xindex, #relax.dims<["b", 3]>>
  return %23 : tensor<?x3xindex, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @cast_wraps(
func.func @cast_wraps(%x: tensor<4xf16>) -> tensor<4xf8E4M3FN> {
  // CHECK: "relax.cast"(%{{.*}}) {dtype = f8E4M3FN, saturate = false} :
  %0 = "relax.cast"(%x) {dtype = f8E4M3FN, saturate = false} : (tensor<4xf16>) -> tensor<4xf8E4M3FN>
  return %0 : tensor<4xf8E4M3FN>
}

// CHECK-LABEL: func.func @bitcast(
func.func @bitcast(%x: tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xui32, #relax.dims<["n", 4]>> {
  // CHECK: "relax.bitcast"(%{{.*}}) {dtype = ui32} :
  %0 = "relax.bitcast"(%x) {dtype = ui32} : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xui32, #relax.dims<["n", 4]>>
  return %0 : tensor<?x4xui32, #relax.dims<["n", 4]>>
}
