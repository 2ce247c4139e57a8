// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @attention_1(%query: tensor<8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op query [batch, heads, length, size] must have rank 4, got f32[8, 4, 64]}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>) -> tensor<8x4x64xf32>
  return
}

// -----

func.func @attention_2(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf16>) {
  // expected-error@+1 {{'relax.attention' op query, key and value must have one element type, got f32, f32, f16}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf16>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_3(%query: tensor<2x8x4x64xi32>, %key: tensor<2x8x4x64xi32>, %value: tensor<2x8x4x64xi32>) {
  // expected-error@+1 {{'relax.attention' op query, key and value must be floating point, got i32}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xi32>, tensor<2x8x4x64xi32>, tensor<2x8x4x64xi32>) -> tensor<2x8x4x64xi32>
  return
}

// -----

func.func @attention_4(%query: tensor<2x8x4x64xf32>, %key: tensor<3x8x5x64xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op the batch dims of query f32[2, 8, 4, 64] and key f32[3, 8, 5, 64] must agree, got 2 and 3}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<3x8x5x64xf32>, tensor<2x8x5x64xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_5(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x32xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op the head sizes of query f32[2, 8, 4, 64] and key f32[2, 8, 5, 32] must agree, got 64 and 32}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<2x8x5x32xf32>, tensor<2x8x5x64xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_6(%query: tensor<2x8x4x64xf32>, %key: tensor<2x4x5x64xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op the heads of key f32[2, 4, 5, 64] and value f32[2, 8, 5, 64] must agree, got 4 and 8}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<2x4x5x64xf32>, tensor<2x8x5x64xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_7(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x6x64xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op the lengths of key f32[2, 8, 6, 64] and value f32[2, 8, 5, 64] must agree, got 6 and 5}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<2x8x6x64xf32>, tensor<2x8x5x64xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_8(%query: tensor<2x8x4x64xf32>, %key: tensor<2x3x5x64xf32>, %value: tensor<2x3x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op the 8 heads of the query must be a multiple of the 3 heads of key and value}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<2x3x5x64xf32>, tensor<2x3x5x64xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_9(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf32>, %mask: tensor<2x8x5x4xf32>) {
  // expected-error@+1 {{'relax.attention' op mask of shape [2, 8, 5, 4] does not broadcast to [2, 8, 4, 5]}}
  %0 = "relax.attention"(%query, %key, %value, %mask) : (tensor<2x8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x4xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_10(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf32>, %mask: tensor<4x5xi32>) {
  // expected-error@+1 {{'relax.attention' op mask must be floating point or bool, got i32}}
  %0 = "relax.attention"(%query, %key, %value, %mask) : (tensor<2x8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>, tensor<4x5xi32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_11(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf32>, %mask: tensor<4x5xf16>) {
  // expected-error@+1 {{'relax.attention' op query and mask must have one element type, got f32, f16}}
  %0 = "relax.attention"(%query, %key, %value, %mask) : (tensor<2x8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>, tensor<4x5xf16>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @attention_12(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op result is declared f32[2, 8, 5, 64], but its operands and attributes make it f32[2, 8, 4, 64]}}
  %0 = "relax.attention"(%query, %key, %value) : (tensor<2x8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>) -> tensor<2x8x5x64xf32>
  return
}

// -----

func.func @rotary_embedding_1(%x: tensor<8x4x64xf32>, %cos: tensor<4x32xf32>, %sin: tensor<4x32xf32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op operand [batch, heads, length, size] must have rank 4, got f32[8, 4, 64]}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<8x4x64xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_2(%x: tensor<2x8x4x64xf32>, %cos: tensor<4x32xf32>, %sin: tensor<4x16xf32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op cos and sin must have one shape, got f32[4, 32] and f32[4, 16]}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xf32>, tensor<4x32xf32>, tensor<4x16xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_3(%x: tensor<2x8x4x64xf32>, %cos: tensor<4x33xf32>, %sin: tensor<4x33xf32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op cos and sin of 33 angles rotate 66 elements, but heads have 64}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xf32>, tensor<4x33xf32>, tensor<4x33xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_4(%x: tensor<2x8x4x64xf32>, %cos: tensor<5x32xf32>, %sin: tensor<5x32xf32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op cos of shape [5, 32] does not broadcast to [2, 1, 4, 32]}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xf32>, tensor<5x32xf32>, tensor<5x32xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_5(%x: tensor<2x8x4x64xf32>, %cos: tensor<f32>, %sin: tensor<f32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op cos and sin must have rank 1 or more, got f32[]}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xf32>, tensor<f32>, tensor<f32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_6(%x: tensor<2x8x4x64xf32>, %cos: tensor<4x32xf16>, %sin: tensor<4x32xf16>) {
  // expected-error@+1 {{'relax.rotary_embedding' op operands must have one element type, got f32, f16, f16}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xf32>, tensor<4x32xf16>, tensor<4x32xf16>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_7(%x: tensor<2x8x4x64xf32>, %cos: tensor<2x8x4x32xf32>, %sin: tensor<2x8x4x32xf32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op cos of shape [2, 8, 4, 32] does not broadcast to [2, 1, 4, 32]}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @rotary_embedding_8(%x: tensor<2x8x4x64xi32>, %cos: tensor<2x8x4x64xi32>, %sin: tensor<2x8x4x64xi32>) {
  // expected-error@+1 {{'relax.rotary_embedding' op operands must be floating point, got i32}}
  %0 = "relax.rotary_embedding"(%x, %cos, %sin) : (tensor<2x8x4x64xi32>, tensor<2x8x4x64xi32>, tensor<2x8x4x64xi32>) -> tensor<2x8x4x64xi32>
  return
}

// -----

func.func @attention_at_end(%query: tensor<2x8x4x64xf32>, %key: tensor<2x8x5x64xf32>, %value: tensor<2x8x5x64xf32>) {
  // expected-error@+1 {{'relax.attention' op at_end applies to a causal attention only: set causal, or leave at_end out}}
  %0 = "relax.attention"(%query, %key, %value) {at_end = true} : (tensor<2x8x4x64xf32>, tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>) -> tensor<2x8x4x64xf32>
  return
}

// -----

func.func @cache_write_1(%cache: tensor<2x2x4x8xf32>, %new: tensor<2x2x1x8xf32>, %positions: tensor<2xi64>) {
  // expected-error@+1 {{'relax.cache_write' op positions must be i64[batch, length], got i64[2]}}
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = [2, 2, 4, 8]} : (tensor<2x2x4x8xf32>, tensor<2x2x1x8xf32>, tensor<2xi64>) -> tensor<2x2x4x8xf32>
  return
}

// -----

func.func @cache_write_2(%cache: tensor<2x2x4x8xf32>, %new: tensor<2x2x1x8xf32>, %positions: tensor<2x1xi32>) {
  // expected-error@+1 {{'relax.cache_write' op positions must be i64[batch, length], got i32[2, 1]}}
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = [2, 2, 4, 8]} : (tensor<2x2x4x8xf32>, tensor<2x2x1x8xf32>, tensor<2x1xi32>) -> tensor<2x2x4x8xf32>
  return
}

// -----

func.func @cache_write_3(%cache: tensor<2x2x4x8xf32>, %new: tensor<2x2x1x8xf16>, %positions: tensor<2x1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op cache and new must have one element type, got f32, f16}}
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = [2, 2, 4, 8]} : (tensor<2x2x4x8xf32>, tensor<2x2x1x8xf16>, tensor<2x1xi64>) -> tensor<2x2x4x8xf32>
  return
}

// -----

func.func @cache_write_4(%cache: tensor<2x2x4x8xf32>, %new: tensor<2x2x1x8xf32>, %positions: tensor<2x1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op the result must have the 4 rows of the cache or more, got 3}}
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = [2, 2, 3, 8]} : (tensor<2x2x4x8xf32>, tensor<2x2x1x8xf32>, tensor<2x1xi64>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @cache_write_5(%cache: tensor<2x2x4x8xf32>, %new: tensor<2x2x1x8xf32>, %positions: tensor<2x1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op dim 1 of new f32[2, 2, 1, 8] and of shape must agree, got 2 and 3}}
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = [2, 3, 4, 8]} : (tensor<2x2x4x8xf32>, tensor<2x2x1x8xf32>, tensor<2x1xi64>) -> tensor<2x3x4x8xf32>
  return
}

// -----

func.func @cache_write_6(%cache: tensor<2x2x4x8xf32>, %new: tensor<2x2x3x8xf32>, %positions: tensor<2x1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op the lengths of new f32[2, 2, 3, 8] and positions i64[2, 1] must agree, got 3 and 1}}
  %0 = "relax.cache_write"(%cache, %new, %positions) {shape = [2, 2, 4, 8]} : (tensor<2x2x4x8xf32>, tensor<2x2x3x8xf32>, tensor<2x1xi64>) -> tensor<2x2x4x8xf32>
  return
}

// -----

func.func @attention_with_scales_1(%query: tensor<1x4x3x8xf32>, %key: tensor<1x2x5x8xf32>, %scale: tensor<1x2x5x1xf32>, %wrong: tensor<1x2x1x1xf32>) {
  // expected-error@+1 {{'relax.attention_with_scales' op value_scale must be f32[1, 2, 5, 1], got f32[1, 2, 1, 1]}}
  %0 = "relax.attention_with_scales"(%query, %key, %key, %scale, %wrong) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>} : (tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x1xf32>, tensor<1x2x1x1xf32>) -> tensor<1x4x3x8xf32>
  return
}

// -----

func.func @attention_with_scales_2(%query: tensor<1x4x3x8xf32>, %key: tensor<1x2x5x8xf32>, %scale: tensor<1x2x5x1xf32>, %sinks: tensor<3xf32>) {
  // expected-error@+1 {{'relax.attention_with_scales' op the heads of query f32[1, 4, 3, 8] and sinks f32[3] must agree, got 4 and 3}}
  %0 = "relax.attention_with_scales"(%query, %key, %key, %scale, %scale, %sinks) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>} : (tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x1xf32>, tensor<1x2x5x1xf32>, tensor<3xf32>) -> tensor<1x4x3x8xf32>
  return
}

// -----

func.func @paged_attention_1(%query: tensor<2x4x1x8xf32>, %cache: tensor<5x16x2x8xf32>, %other: tensor<5x8x2x8xf32>, %codes: tensor<5x16x2x8xi32>, %table: tensor<2x3xi64>, %lengths: tensor<2xi64>, %scale: tensor<5x16x2x1xf32>) {
  // expected-error@+1 {{'relax.paged_attention' op key_cache f32[5, 16, 2, 8] and value_cache f32[5, 8, 2, 8] must have the same rows and heads}}
  %0 = "relax.paged_attention"(%query, %cache, %other, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<2x4x1x8xf32>, tensor<5x16x2x8xf32>, tensor<5x8x2x8xf32>, tensor<2x3xi64>, tensor<2xi64>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_2(%query: tensor<2x4x1x8xf32>, %cache: tensor<5x16x2x8xf32>, %other: tensor<5x8x2x8xf32>, %codes: tensor<5x16x2x8xi32>, %table: tensor<2x3xi64>, %lengths: tensor<2xi64>, %scale: tensor<5x16x2x1xf32>) {
  // expected-error@+1 {{'relax.paged_attention' op key_cache must be floating point or i8, got i32}}
  %0 = "relax.paged_attention"(%query, %codes, %codes, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<2x4x1x8xf32>, tensor<5x16x2x8xi32>, tensor<5x16x2x8xi32>, tensor<2x3xi64>, tensor<2xi64>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_3(%query: tensor<2x4x1x8xf32>, %cache: tensor<5x16x2x8xf32>, %other: tensor<5x8x2x8xf32>, %codes: tensor<5x16x2x8xi32>, %table: tensor<2x3xi64>, %lengths: tensor<2xi64>, %scale: tensor<5x16x2x1xf32>) {
  // expected-error@+1 {{'relax.paged_attention' op table and lengths must be i64[batch, pages] and i64[batch], got i64[2] and i64[2]}}
  %0 = "relax.paged_attention"(%query, %cache, %cache, %lengths, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<2x4x1x8xf32>, tensor<5x16x2x8xf32>, tensor<5x16x2x8xf32>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_4(%query: tensor<2x4x1x8xf32>, %cache: tensor<5x16x2x8xf32>, %other: tensor<5x8x2x8xf32>, %codes: tensor<5x16x2x8xi32>, %table: tensor<2x3xi64>, %lengths: tensor<2xi64>, %scale: tensor<5x16x2x1xf32>) {
  // expected-error@+1 {{'relax.paged_attention' op key_scale and value_scale must both be given, or none of them}}
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths, %scale) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1, 0, 0>} : (tensor<2x4x1x8xf32>, tensor<5x16x2x8xf32>, tensor<5x16x2x8xf32>, tensor<2x3xi64>, tensor<2xi64>, tensor<5x16x2x1xf32>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_5(%query: tensor<2x4x1x8xf32>, %cache: tensor<5x16x2x8xf32>, %other: tensor<5x8x2x8xf32>, %codes: tensor<5x16x2x8xi32>, %table: tensor<2x3xi64>, %lengths: tensor<2xi64>, %scale: tensor<5x16x2x1xf32>) {
  // expected-error@+1 {{'relax.paged_attention' op key_scale must be f32[5, 16, 2, 1], got f32[5, 16, 2, 8]}}
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths, %cache, %scale) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1, 1, 0>} : (tensor<2x4x1x8xf32>, tensor<5x16x2x8xf32>, tensor<5x16x2x8xf32>, tensor<2x3xi64>, tensor<2xi64>, tensor<5x16x2x8xf32>, tensor<5x16x2x1xf32>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @attention_13(%x0: tensor<1x4x2x8xf32>, %x1: tensor<1x4x3x8xf32>, %x2: tensor<1x4x3x8xf32>) {
  // expected-error@+1 {{'relax.attention' op softcap must be positive, got 0.0}}
  %0 = "relax.attention"(%x0, %x1, %x2) {softcap = 0.0 : f64} : (tensor<1x4x2x8xf32>, tensor<1x4x3x8xf32>, tensor<1x4x3x8xf32>) -> tensor<1x4x2x8xf32>
  return
}

// -----

func.func @attention_with_scales_3(%x0: tensor<1x4x3x8xf32>, %x1: tensor<1x2x5x8xf32>, %x2: tensor<1x2x5x6xf32>, %x3: tensor<1x2x5x1xf32>, %x4: tensor<1x2x1xf16>) {
  // expected-error@+1 {{'relax.attention_with_scales' op query and value_scale must have one element type, got f32, f16}}
  %0 = "relax.attention_with_scales"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>} : (tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x6xf32>, tensor<1x2x5x1xf32>, tensor<1x2x1xf16>) -> tensor<1x4x3x6xf32>
  return
}

// -----

func.func @attention_with_sinks_1(%x0: tensor<1x4x2x8xf32>, %x1: tensor<1x4x3x8xf32>, %x2: tensor<1x4x3x8xf32>, %x3: tensor<f32>) {
  // expected-error@+1 {{'relax.attention_with_sinks' op sinks [heads] must have rank 1, got f32[]}}
  %0 = "relax.attention_with_sinks"(%x0, %x1, %x2, %x3) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<1x4x2x8xf32>, tensor<1x4x3x8xf32>, tensor<1x4x3x8xf32>, tensor<f32>) -> tensor<1x4x2x8xf32>
  return
}

// -----

func.func @attention_with_sinks_2(%x0: tensor<1x4x2x8xf32>, %x1: tensor<1x4x3x8xf32>, %x2: tensor<1x4x3x8xf32>, %x3: tensor<4xi8>) {
  // expected-error@+1 {{'relax.attention_with_sinks' op query and sinks must have one element type, got f32, i8}}
  %0 = "relax.attention_with_sinks"(%x0, %x1, %x2, %x3) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<1x4x2x8xf32>, tensor<1x4x3x8xf32>, tensor<1x4x3x8xf32>, tensor<4xi8>) -> tensor<1x4x2x8xf32>
  return
}

// -----

func.func @cache_write_7(%x0: tensor<1x2x8x4xf32>, %x1: tensor<1x2x4xf32>, %x2: tensor<1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op new [batch, heads, length, size] must have rank 4, got f32[1, 2, 4]}}
  %0 = "relax.cache_write"(%x0, %x1, %x2) {shape = [1, 2, 3, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x4xf32>, tensor<1xi64>) -> tensor<1x2x9x4xf32>
  return
}

// -----

func.func @cache_write_8(%x0: tensor<1x2x8x4xf32>, %x1: tensor<1x2x1x4xf32>, %x2: tensor<2x1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op the batch dims of new f32[1, 2, 1, 4] and positions i64[2, 1] must agree, got 1 and 2}}
  %0 = "relax.cache_write"(%x0, %x1, %x2) {shape = [1, 2, 9]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<2x1xi64>) -> tensor<1x2x9x4xf32>
  return
}

// -----

func.func @cache_write_9(%x0: tensor<1x2x8x4xf32>, %x1: tensor<1x2x1x4xf32>, %x2: tensor<1x1xi64>) {
  // expected-error@+1 {{'relax.cache_write' op shape must be 4 dims, got 2}}
  %0 = "relax.cache_write"(%x0, %x1, %x2) {shape = [1, 3]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  return
}

// -----

func.func @paged_attention_6(%x0: tensor<2x4x1x8xf32>, %x1: tensor<5x16x2x8xf32>, %x2: tensor<5x16x2x8xf32>, %x3: tensor<2x3xi64>, %x4: tensor<2xi64>, %x5: tensor<f32>) {
  // expected-error@+1 {{'relax.paged_attention' op sinks [heads] must have rank 1, got f32[]}}
  %0 = "relax.paged_attention"(%x0, %x1, %x2, %x3, %x4, %x5) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 1>} : (tensor<2x4x1x8xf32>, tensor<5x16x2x8xf32>, tensor<5x16x2x8xf32>, tensor<2x3xi64>, tensor<2xi64>, tensor<f32>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_7(%x0: tensor<1x4x1x8xi64>, %x1: tensor<3x4x8xf32>, %x2: tensor<3x4x2x8xf32>, %x3: tensor<1x2xi64>, %x4: tensor<1xi64>) {
  // expected-error@+1 {{'relax.paged_attention' op query must be floating point, got i64}}
  %0 = "relax.paged_attention"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<1x4x1x8xi64>, tensor<3x4x8xf32>, tensor<3x4x2x8xf32>, tensor<1x2xi64>, tensor<1xi64>) -> tensor<1x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_8(%x0: tensor<1x4x1xf32>, %x1: tensor<3x4x2x8xf32>, %x2: tensor<3x4x2x8xf32>, %x3: tensor<1x2xi64>, %x4: tensor<1xi64>) {
  // expected-error@+1 {{'relax.paged_attention' op query [batch, heads, length, size] must have rank 4, got f32[1, 4, 1]}}
  %0 = "relax.paged_attention"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<1x4x1xf32>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>, tensor<1x2xi64>, tensor<1xi64>) -> tensor<1x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_9(%x0: tensor<2x4x1x8xf32>, %x1: tensor<5x4x2x8xf32>, %x2: tensor<5x8xf32>, %x3: tensor<2x3xi64>, %x4: tensor<2xi64>) {
  // expected-error@+1 {{'relax.paged_attention' op value_cache [pages, rows, heads, size] must have rank 4, got f32[5, 8]}}
  %0 = "relax.paged_attention"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<2x4x1x8xf32>, tensor<5x4x2x8xf32>, tensor<5x8xf32>, tensor<2x3xi64>, tensor<2xi64>) -> tensor<2x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_10(%x0: tensor<1x4x1x8xf32>, %x1: tensor<3x4x2x8xf32>, %x2: tensor<3x4x2x8xf32>, %x3: tensor<1x2xi64>, %x4: tensor<2xi64>) {
  // expected-error@+1 {{'relax.paged_attention' op the batch dims of query f32[1, 4, 1, 8] and lengths i64[2] must agree, got 1 and 2}}
  %0 = "relax.paged_attention"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<1x4x1x8xf32>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>, tensor<1x2xi64>, tensor<2xi64>) -> tensor<1x4x1x8xf32>
  return
}

// -----

func.func @paged_attention_11(%x0: tensor<1x2x1x8xf32>, %x1: tensor<4x16x2x8xf32>, %x2: tensor<0x16x2x8xf32>, %x3: tensor<1x2xi64>, %x4: tensor<1xi64>) {
  // expected-error@+1 {{'relax.paged_attention' op value_cache f32[0, 16, 2, 8], which is read, has no pages}}
  %0 = "relax.paged_attention"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<1x2x1x8xf32>, tensor<4x16x2x8xf32>, tensor<0x16x2x8xf32>, tensor<1x2xi64>, tensor<1xi64>) -> tensor<1x2x1x8xf32>
  return
}
