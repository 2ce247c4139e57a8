// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @full_1() {
  // expected-error@+1 {{'relax.full' op needs the attribute 'dtype', an element type such as f32}}
  %0 = "relax.full"() {shape = [2], value = 1.0 : f64} : () -> tensor<f32>
  return
}

// -----

func.func @full_2() {
  // expected-error@+1 {{'relax.full' op needs the attribute 'shape', dims such as [2, "batch"]}}
  %0 = "relax.full"() {value = 1.0 : f64, dtype = f32} : () -> tensor<f32>
  return
}

// -----

func.func @full_3() {
  // expected-error@+1 {{'relax.full' op attribute 'value' must be a number such as 0.5 : f64, got 1 : i64}}
  %0 = "relax.full"() {shape = [2], value = 1 : i64, dtype = f32} : () -> tensor<f32>
  return
}

// -----

func.func @full_4() {
  // expected-error@+1 {{'relax.full' op result is declared f32[], but its operands and attributes make it f32[2]}}
  %0 = "relax.full"() {shape = [2], value = 1.0 : f64, dtype = f32} : () -> tensor<f32>
  return
}

// -----

func.func @full_5() {
  // expected-error@+1 {{'relax.full' op attribute 'dtype' must be an element type such as f32, got "f32"}}
  %0 = "relax.full"() {shape = [2], value = 1.0 : f64, dtype = "f32"} : () -> tensor<f32>
  return
}

// -----

func.func @full_6(%extra0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.full' op needs 0 operands, got 1}}
  %0 = "relax.full"(%extra0) {shape = [2], value = 1.0 : f64, dtype = f32} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @arange_1() {
  // expected-error@+1 {{'relax.arange' op start, stop and step must be finite and step not 0, got 0.0, 4.0, 0.0}}
  %0 = "relax.arange"() {start = 0.0 : f64, stop = 4.0 : f64, step = 0.0 : f64, dtype = i64} : () -> tensor<f32>
  return
}

// -----

func.func @arange_2() {
  // expected-error@+1 {{'relax.arange' op start, stop and step must be finite and step not 0, got 0.0, inf, 1.0}}
  %0 = "relax.arange"() {start = 0.0 : f64, stop = 0x7FF0000000000000 : f64, step = 1.0 : f64, dtype = i64} : () -> tensor<f32>
  return
}

// -----

func.func @arange_3() {
  // expected-error@+1 {{'relax.arange' op dtype must be a number type, got bool}}
  %0 = "relax.arange"() {start = 0.0 : f64, stop = 4.0 : f64, step = 1.0 : f64, dtype = i1} : () -> tensor<f32>
  return
}

// -----

func.func @arange_4() {
  // expected-error@+1 {{'relax.arange' op result is declared i64[5], but its operands and attributes make it i64[4]}}
  %0 = "relax.arange"() {start = 0.0 : f64, stop = 4.0 : f64, step = 1.0 : f64, dtype = i64} : () -> tensor<5xi64>
  return
}

// -----

func.func @eye_1() {
  // expected-error@+1 {{'relax.eye' op shape must have two dims, got [2]}}
  %0 = "relax.eye"() {shape = [2], dtype = f32} : () -> tensor<f32>
  return
}

// -----

func.func @eye_2() {
  // expected-error@+1 {{'relax.eye' op result is declared f64[2, 2], but its operands and attributes make it f32[2, 2]}}
  %0 = "relax.eye"() {shape = [2, 2], dtype = f32} : () -> tensor<2x2xf64>
  return
}

// -----

func.func @tri_1(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.tri' op operand must have rank 2 or more, got f32[4]}}
  %0 = "relax.tri"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @tri_2(%x: tensor<2x2xf32>) {
  // expected-error@+1 {{'relax.tri' op attribute 'upper' must be true or false, got "yes"}}
  %0 = "relax.tri"(%x) {upper = "yes"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @dft_matrix_1() {
  // expected-error@+1 {{'relax.dft_matrix' op shape must be [elements, 1 or 2, results, 1 or 2], got [4, 3, 4, 2]}}
  %0 = "relax.dft_matrix"() {dtype = f32, length = [4], shape = [4, 3, 4, 2]} : () -> tensor<4x3x4x2xf32>
  return
}

// -----

func.func @dft_matrix_2() {
  // expected-error@+1 {{'relax.dft_matrix' op dtype must be a float type, got i32}}
  %0 = "relax.dft_matrix"() {dtype = i32, length = [4], shape = [4, 1, 4, 2]} : () -> tensor<4x1x4x2xi32>
  return
}

// -----

func.func @dft_matrix_3() {
  // expected-error@+1 {{'relax.dft_matrix' op length must be at least 1, got 0}}
  %0 = "relax.dft_matrix"() {dtype = f32, length = [0], shape = [4, 1, 4, 2]} : () -> tensor<4x1x4x2xf32>
  return
}
