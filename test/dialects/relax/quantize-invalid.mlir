// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @quantize_1(%x: tensor<2x3xf32>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.quantize' op dtype must be an integer of at most 32 bits or a float of at most 8, got f32}}
  %0 = "relax.quantize"(%x, %scale) {dtype = f32} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_2(%x: tensor<2x3xi1>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.quantize' op operand must be floating point or integer, got bool}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8} : (tensor<2x3xi1>, tensor<f32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @quantize_3(%x: tensor<2x3xf32>, %scale: tensor<2xf32>) {
  // expected-error@+1 {{'relax.quantize' op scale must be a vector of one number per element of axis 1, 3, got f32[2]}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_4(%x: tensor<2x3xf32>, %scale: tensor<i32>) {
  // expected-error@+1 {{'relax.quantize' op scale must be floating point, got i32}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8} : (tensor<2x3xf32>, tensor<i32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_5(%x: tensor<2x3xf32>, %scale: tensor<f32>, %zero_point: tensor<ui8>) {
  // expected-error@+1 {{'relax.quantize' op zero point must have the quantized element type, i8, got u8}}
  %0 = "relax.quantize"(%x, %scale, %zero_point) {dtype = i8} : (tensor<2x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_6(%x: tensor<2x3xf32>, %scale: tensor<3xf32>, %zero_point: tensor<i8>) {
  // expected-error@+1 {{'relax.quantize' op zero point and scale must have one shape, got [] and [3]}}
  %0 = "relax.quantize"(%x, %scale, %zero_point) {dtype = i8} : (tensor<2x3xf32>, tensor<3xf32>, tensor<i8>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_7(%x: tensor<2x3xf32>, %scale: tensor<3xf32>) {
  // expected-error@+1 {{'relax.quantize' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8, axis = 2 : i64} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_8(%x: tensor<64x8xf32>, %scale: tensor<64xf32>) {
  // expected-error@+1 {{'relax.quantize' op scale must have the rank of the operand f32[64, 8] when block is 32, got f32[64]}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8, axis = 0 : i64, block = 32 : i64} : (tensor<64x8xf32>, tensor<64xf32>) -> tensor<64x8xf32>
  return
}

// -----

func.func @quantize_9(%x: tensor<64x8xf32>, %scale: tensor<4x8xf32>) {
  // expected-error@+1 {{'relax.quantize' op dim 0 of scale f32[4, 8] and the blocks of 32 of f32[64, 8] must agree, got 4 and 2}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8, axis = 0 : i64, block = 32 : i64} : (tensor<64x8xf32>, tensor<4x8xf32>) -> tensor<64x8xf32>
  return
}

// -----

func.func @quantize_10(%x: tensor<64x8xf32>, %scale: tensor<2x8xf32>) {
  // expected-error@+1 {{'relax.quantize' op block must not be negative, got -1}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8, block = -1 : i64} : (tensor<64x8xf32>, tensor<2x8xf32>) -> tensor<64x8xf32>
  return
}

// -----

func.func @quantize_11(%x: tensor<2x3xf32>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.quantize' op needs the attribute 'dtype', an element type such as f32}}
  %0 = "relax.quantize"(%x, %scale) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @quantize_12(%x: tensor<2x3xf32>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.quantize' op result is declared u8[2, 3], but its operands and attributes make it i8[2, 3]}}
  %0 = "relax.quantize"(%x, %scale) {dtype = i8} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xui8>
  return
}

// -----

func.func @dequantize_1(%x: tensor<2xf32>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.dequantize' op operand must be an integer of at most 32 bits or a float of at most 8, got f32}}
  %0 = "relax.dequantize"(%x, %scale) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return
}

// -----

func.func @dequantize_2(%x: tensor<2xi64>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.dequantize' op operand must be an integer of at most 32 bits or a float of at most 8, got i64}}
  %0 = "relax.dequantize"(%x, %scale) : (tensor<2xi64>, tensor<f32>) -> tensor<2xi64>
  return
}

// -----

func.func @dequantize_3(%x: tensor<2xi8>, %scale: tensor<f32>) {
  // expected-error@+1 {{'relax.dequantize' op dtype must be floating point, got i32}}
  %0 = "relax.dequantize"(%x, %scale) {dtype = i32} : (tensor<2xi8>, tensor<f32>) -> tensor<2xi8>
  return
}

// -----

func.func @dequantize_4(%x: tensor<2x3xi8>, %scale: tensor<3xf32>, %zero_point: tensor<3xui8>) {
  // expected-error@+1 {{'relax.dequantize' op zero point must have the quantized element type, i8, got u8}}
  %0 = "relax.dequantize"(%x, %scale, %zero_point) : (tensor<2x3xi8>, tensor<3xf32>, tensor<3xui8>) -> tensor<2x3xi8>
  return
}

// -----

func.func @dequantize_5(%x: tensor<2x3xi8>, %scale: tensor<2xf32>) {
  // expected-error@+1 {{'relax.dequantize' op scale must be a vector of one number per element of axis 1, 3, got f32[2]}}
  %0 = "relax.dequantize"(%x, %scale) : (tensor<2x3xi8>, tensor<2xf32>) -> tensor<2x3xi8>
  return
}

// -----

func.func @requantize_1(%x: tensor<2x3xf32>, %m: tensor<3xf32>) {
  // expected-error@+1 {{'relax.requantize' op operand must be i32, got f32[2, 3]}}
  %0 = "relax.requantize"(%x, %m, %m, %m, %m) {dtype = i8, min = -128 : i64, max = 127 : i64} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xi8>
  return
}

// -----

func.func @requantize_2(%x: tensor<2x3xi32>, %m: tensor<3xf32>) {
  // expected-error@+1 {{'relax.requantize' op min and max must be an interval within i8, got -128 and 200}}
  %0 = "relax.requantize"(%x, %m, %m, %m, %m) {dtype = i8, min = -128 : i64, max = 200 : i64} : (tensor<2x3xi32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xi8>
  return
}

// -----

func.func @quantize_rows_1(%x0: tensor<5xi1>) {
  // expected-error@+1 {{'relax.quantize_rows' op operand must be floating point, got bool}}
  %0:3 = "relax.quantize_rows"(%x0) {block = 32, digits = 1} : (tensor<5xi1>) -> (tensor<1x2x4x32xi8>, tensor<2x4xf32>, tensor<1x2x4xi32>)
  return
}

// -----

func.func @quantize_rows_2(%x0: tensor<f32>) {
  // expected-error@+1 {{'relax.quantize_rows' op operand must be a matrix, got f32[]}}
  %0:3 = "relax.quantize_rows"(%x0) {block = 32, digits = 1} : (tensor<f32>) -> (tensor<1x2x4x32xi8>, tensor<2x4xf32>, tensor<1x2x4xi32>)
  return
}

// -----

func.func @quantize_rows_3(%x0: tensor<4x3xf32>) {
  // expected-error@+1 {{'relax.quantize_rows' op block must be positive and digits 1 to 3, got 5 and 0}}
  %0:3 = "relax.quantize_rows"(%x0) {block = 5, digits = 0} : (tensor<4x3xf32>) -> (tensor<1x2x4x32xi8>, tensor<2x4xf32>, tensor<1x2x4xi32>)
  return
}

// -----

func.func @requantize_3(%x0: tensor<4x5xi32>, %x1: tensor<5xi8>, %x2: tensor<5xf32>, %x3: tensor<5xi1>, %x4: tensor<5xf32>) {
  // expected-error@+1 {{'relax.requantize' op multiplier must be f32, got i8[5]}}
  %0 = "relax.requantize"(%x0, %x1, %x2, %x3, %x4) {dtype = i8, max = 0, min = -128, zero_point = 0} : (tensor<4x5xi32>, tensor<5xi8>, tensor<5xf32>, tensor<5xi1>, tensor<5xf32>) -> tensor<4x5xi8>
  return
}

// -----

func.func @requantize_4(%x0: tensor<4xi32>, %x1: tensor<5xf32>, %x2: tensor<f32>, %x3: tensor<5xf32>, %x4: tensor<5xf32>) {
  // expected-error@+1 {{'relax.requantize' op multiplier of shape [5] does not broadcast to [4]}}
  %0 = "relax.requantize"(%x0, %x1, %x2, %x3, %x4) {dtype = i8, max = 127, min = -128, zero_point = 0} : (tensor<4xi32>, tensor<5xf32>, tensor<f32>, tensor<5xf32>, tensor<5xf32>) -> tensor<4x5xi8>
  return
}

// -----

func.func @requantize_5(%x0: tensor<4x5xi32>, %x1: tensor<5xf32>, %x2: tensor<5xf32>, %x3: tensor<5xf32>, %x4: tensor<f32>) {
  // expected-error@+1 {{'relax.requantize' op dtype must be an integer of 8 or 16 bits, got i4}}
  %0 = "relax.requantize"(%x0, %x1, %x2, %x3, %x4) {dtype = i4, max = 100, min = -128, zero_point = 0} : (tensor<4x5xi32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<f32>) -> tensor<4x5xi8>
  return
}

// -----

func.func @requantize_6(%x: tensor<4x5xi32>, %m: tensor<5xf32>) {
  // expected-error@+1 {{'relax.requantize' op zero_point must be within i8, got 200}}
  %0 = "relax.requantize"(%x, %m, %m, %m, %m) {dtype = i8, min = -128, max = 127, zero_point = 200} : (tensor<4x5xi32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<4x5xi8>
  return
}

// -----

func.func @unpack_1(%x0: tensor<ui8>) {
  // expected-error@+1 {{'relax.unpack' op operand must be u8 of rank 1 or more, got u8[]}}
  %0 = "relax.unpack"(%x0) {dtype = i4} : (tensor<ui8>) -> tensor<4x10xi4>
  return
}

// -----

func.func @unpack_2(%x0: tensor<5xui8>) {
  // expected-error@+1 {{'relax.unpack' op dtype must be of 2 or 4 bits, got i8}}
  %0 = "relax.unpack"(%x0) {dtype = i8} : (tensor<5xui8>) -> tensor<4x10xi4>
  return
}

// -----

func.func @rescale_1(%x: tensor<2x3xf32>, %m: tensor<3xi32>) {
  // expected-error@+1 {{'relax.rescale' op operand must be integer or unsigned integer, got f32}}
  %0 = "relax.rescale"(%x, %m, %m) {dtype = i8} : (tensor<2x3xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<2x3xi8>
  return
}

// -----

func.func @rescale_2(%x: tensor<2x3xi32>, %m: tensor<3xi32>, %s: tensor<3xi8>) {
  // expected-error@+1 {{'relax.rescale' op multiplier and shift must be i32, got i32[3] and i8[3]}}
  %0 = "relax.rescale"(%x, %m, %s) {dtype = i8} : (tensor<2x3xi32>, tensor<3xi32>, tensor<3xi8>) -> tensor<2x3xi8>
  return
}

// -----

func.func @rescale_3(%x: tensor<2x3xi32>, %m: tensor<2xi32>, %s: tensor<3xi32>) {
  // expected-error@+1 {{'relax.rescale' op multiplier of shape [2] does not broadcast to [2, 3]}}
  %0 = "relax.rescale"(%x, %m, %s) {dtype = i8} : (tensor<2x3xi32>, tensor<2xi32>, tensor<3xi32>) -> tensor<2x3xi8>
  return
}

// -----

func.func @rescale_4(%x: tensor<2x3xi32>, %m: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error@+1 {{'relax.rescale' op shift of shape [2] does not broadcast to [2, 3]}}
  %0 = "relax.rescale"(%x, %m, %s) {dtype = i8} : (tensor<2x3xi32>, tensor<3xi32>, tensor<2xi32>) -> tensor<2x3xi8>
  return
}

// -----

func.func @rescale_5(%x: tensor<2x3xi32>, %m: tensor<3xi32>) {
  // expected-error@+1 {{'relax.rescale' op dtype must be an integer of at most 32 bits, got f32}}
  %0 = "relax.rescale"(%x, %m, %m) {dtype = f32} : (tensor<2x3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @rescale_6(%x: tensor<2x3xi32>, %m: tensor<3xi32>) {
  // expected-error@+1 {{'relax.rescale' op zero_point must be within i8, got 128}}
  %0 = "relax.rescale"(%x, %m, %m) {dtype = i8, zero_point = 128 : i64} : (tensor<2x3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<2x3xi8>
  return
}
