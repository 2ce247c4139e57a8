// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Attention and rotary embeddings.

// CHECK-LABEL: func.func @attention_plain(
func.func @attention_plain(%query: tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>, %key: tensor<?x8x?x64xf32, #relax.dims<["b", 8, "t", 64]>>, %value: tensor<?x8x?x32xf32, #relax.dims<["b", 8, "t", 32]>>) -> tensor<?x8x?x32xf32, #relax.dims<["b", 8, "s", 32]>> {
  // CHECK: "relax.attention"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.attention"(%query, %key, %value) : (tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>, tensor<?x8x?x64xf32, #relax.dims<["b", 8, "t", 64]>>, tensor<?x8x?x32xf32, #relax.dims<["b", 8, "t", 32]>>) -> tensor<?x8x?x32xf32, #relax.dims<["b", 8, "s", 32]>>
  return %0 : tensor<?x8x?x32xf32, #relax.dims<["b", 8, "s", 32]>>
}

// CHECK-LABEL: func.func @attention_grouped_causal(
func.func @attention_grouped_causal(%query: tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>>, %key: tensor<?x2x?x64xf16, #relax.dims<["b", 2, "s", 64]>>, %value: tensor<?x2x?x64xf16, #relax.dims<["b", 2, "s", 64]>>) -> tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>> {
  // CHECK: "relax.attention"(%{{.*}}, %{{.*}}, %{{.*}}) {causal = true, scale = 1.250000e-01 : f64} :
  %0 = "relax.attention"(%query, %key, %value) {causal = true, scale = 1.250000e-01 : f64} : (tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>>, tensor<?x2x?x64xf16, #relax.dims<["b", 2, "s", 64]>>, tensor<?x2x?x64xf16, #relax.dims<["b", 2, "s", 64]>>) -> tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>>
  return %0 : tensor<?x8x?x64xf16, #relax.dims<["b", 8, "s", 64]>>
}

// CHECK-LABEL: func.func @attention_float_mask(
func.func @attention_float_mask(%query: tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>, %key: tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, %value: tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, %mask: tensor<2x1x?x?xf32, #relax.dims<[2, 1, "s", "t"]>>) -> tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>> {
  // CHECK: "relax.attention"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.attention"(%query, %key, %value, %mask) : (tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>, tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, tensor<2x1x?x?xf32, #relax.dims<[2, 1, "s", "t"]>>) -> tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>
  return %0 : tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>
}

// CHECK-LABEL: func.func @attention_bool_mask(
func.func @attention_bool_mask(%query: tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>, %key: tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, %value: tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, %mask: tensor<?x?xi1, #relax.dims<["s", "t"]>>) -> tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>> {
  // CHECK: "relax.attention"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.attention"(%query, %key, %value, %mask) : (tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>, tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, tensor<2x8x?x64xf32, #relax.dims<[2, 8, "t", 64]>>, tensor<?x?xi1, #relax.dims<["s", "t"]>>) -> tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>
  return %0 : tensor<2x8x?x64xf32, #relax.dims<[2, 8, "s", 64]>>
}

// CHECK-LABEL: func.func @rotary_halves(
func.func @rotary_halves(%x: tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>, %cos: tensor<?x32xf32, #relax.dims<["s", 32]>>, %sin: tensor<?x32xf32, #relax.dims<["s", 32]>>) -> tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>> {
  // CHECK: "relax.rotary_embedding"(%{{.*}}, %{{.*}}, %{{.*}}) :
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>, tensor<?x32xf32, #relax.dims<["s", 32]>>, tensor<?x32xf32, #relax.dims<["s", 32]>>) -> tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>
  return %0 : tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>
}

// CHECK-LABEL: func.func @rotary_interleaved_part(
func.func @rotary_interleaved_part(%x: tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>, %cos: tensor<?x1x?x16xf32, #relax.dims<["b", 1, "s", 16]>>, %sin: tensor<?x1x?x16xf32, #relax.dims<["b", 1, "s", 16]>>) -> tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>> {
  // CHECK: "relax.rotary_embedding"(%{{.*}}, %{{.*}}, %{{.*}}) {interleaved = true} :
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) {interleaved = true} : (tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>, tensor<?x1x?x16xf32, #relax.dims<["b", 1, "s", 16]>>, tensor<?x1x?x16xf32, #relax.dims<["b", 1, "s", 16]>>) -> tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>
  return %0 : tensor<?x8x?x64xf32, #relax.dims<["b", 8, "s", 64]>>
}

// CHECK-LABEL: func.func @cache_write(
func.func @cache_write(%cache: tensor<?x2x?x64xf32, #relax.dims<["b", 2, "c", 64]>>, %new: tensor<?x2x?x64xf32, #relax.dims<["b", 2, "s", 64]>>, %positions: tensor<?x?xi64, #relax.dims<["b", "s"]>>) -> tensor<?x2x?x64xf32, #relax.dims<["b", 2, "max(c, t)", 64]>> {
  // CHECK: "relax.cache_write"(%{{.*}}, %{{.*}}, %{{.*}}) {shape = ["b", 2, "max(c, t)", 64]} :
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = ["b", 2, "max(c, t)", 64]} : (tensor<?x2x?x64xf32, #relax.dims<["b", 2, "c", 64]>>, tensor<?x2x?x64xf32, #relax.dims<["b", 2, "s", 64]>>, tensor<?x?xi64, #relax.dims<["b", "s"]>>) -> tensor<?x2x?x64xf32, #relax.dims<["b", 2, "max(c, t)", 64]>>
  return %0 : tensor<?x2x?x64xf32, #relax.dims<["b", 2, "max(c, t)", 64]>>
}

// CHECK-LABEL: func.func @attention_with_scales(
func.func @attention_with_scales(%query: tensor<1x4x3x8xf32>, %key: tensor<1x2x5x8xf32>, %value: tensor<1x2x5x6xf32>, %scale: tensor<1x2x5x1xf32>) -> tensor<1x4x3x6xf32> {
  // CHECK: "relax.attention_with_scales"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>} :
  %0 = "relax.attention_with_scales"(%query, %key, %value, %scale, %scale) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>} : (tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x6xf32>, tensor<1x2x5x1xf32>, tensor<1x2x5x1xf32>) -> tensor<1x4x3x6xf32>
  return %0 : tensor<1x4x3x6xf32>
}

// CHECK-LABEL: func.func @paged_attention(
func.func @paged_attention(%query: tensor<?x4x1x8xf32, #relax.dims<["b", 4, 1, 8]>>, %cache: tensor<?x16x2x8xi8, #relax.dims<["n", 16, 2, 8]>>, %table: tensor<?x?xi64, #relax.dims<["b", "m"]>>, %lengths: tensor<?xi64, #relax.dims<["b"]>>, %scale: tensor<?x16x2x1xf32, #relax.dims<["n", 16, 2, 1]>>) -> tensor<?x4x1x8xf32, #relax.dims<["b", 4, 1, 8]>> {
  // CHECK: "relax.paged_attention"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1, 1, 0>} :
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths, %scale, %scale) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1, 1, 0>} : (tensor<?x4x1x8xf32, #relax.dims<["b", 4, 1, 8]>>, tensor<?x16x2x8xi8, #relax.dims<["n", 16, 2, 8]>>, tensor<?x16x2x8xi8, #relax.dims<["n", 16, 2, 8]>>, tensor<?x?xi64, #relax.dims<["b", "m"]>>, tensor<?xi64, #relax.dims<["b"]>>, tensor<?x16x2x1xf32, #relax.dims<["n", 16, 2, 1]>>, tensor<?x16x2x1xf32, #relax.dims<["n", 16, 2, 1]>>) -> tensor<?x4x1x8xf32, #relax.dims<["b", 4, 1, 8]>>
  return %0 : tensor<?x4x1x8xf32, #relax.dims<["b", 4, 1, 8]>>
}
