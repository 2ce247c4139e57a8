// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @cast_1(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.cast' op needs the attribute 'dtype', an element type such as f32}}
  %0 = "relax.cast"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @cast_2(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.cast' op result is declared f32[2], but its operands and attributes make it f16[2]}}
  %0 = "relax.cast"(%x) {dtype = f16} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @cast_3(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.cast' op attribute 'dtype' must be an element type such as f32, got vector<2xf32>}}
  %0 = "relax.cast"(%x) {dtype = vector<2xf32>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @cast_4(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.cast' op result is declared f32[3], but its operands and attributes make it f32[2]}}
  %0 = "relax.cast"(%x) {dtype = f32} : (tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @cast_5(%x: memref<2xf32>) {
  // expected-error@+1 {{'relax.cast' op operand 'x' must be a ranked tensor of a known element type, got memref<2xf32>}}
  %0 = "relax.cast"(%x) {dtype = f32} : (memref<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @bitcast_1(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.bitcast' op needs types of the same size, got f32 and i64}}
  %0 = "relax.bitcast"(%x) {dtype = i64} : (tensor<2xf32>) -> tensor<2xi64>
  return
}

// -----

func.func @bitcast_2(%x: tensor<2xi4>) {
  // expected-error@+1 {{'relax.bitcast' op takes and gives elements of 8 bits and more, and bools, got i4}}
  %0 = "relax.bitcast"(%x) {dtype = ui4} : (tensor<2xi4>) -> tensor<2xui4>
  return
}
