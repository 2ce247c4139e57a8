// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @strided_slice_1(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.strided_slice' op strides must not be 0, got [0]}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 2>, strides = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @strided_slice_2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.strided_slice' op axis 1 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 1>, begin = array<i64: 0>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @strided_slice_3(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.strided_slice' op axes [0, -1] name one axis twice}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0, -1>, begin = array<i64: 0, 0>, end = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @strided_slice_4(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.strided_slice' op axes, begin, end and strides must be equally long, got 1, 2, 1 and 1 numbers}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0, 1>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @strided_slice_5(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.strided_slice' op result is declared f32[4], but its operands and attributes make it f32[2]}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @strided_slice_6(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.strided_slice' op needs the attribute 'begin', integers such as array<i64: 1, 1>}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @strided_slice_7(%x: tensor<?xf32, #relax.dims<["n"]>>) {
  // expected-error@+1 {{'relax.strided_slice' op result is declared f32[n], but its operands and attributes make it f32[min(2, n)]}}
  %0 = "relax.strided_slice"(%x) {axes = array<i64: 0>, begin = array<i64: 0>, end = array<i64: 2>, strides = array<i64: 1>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return
}

// -----

func.func @pad_1(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.pad' op pads must be 2 numbers, all begins then all ends of f32[4], got [1]}}
  %0 = "relax.pad"(%x) {pads = array<i64: 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad_2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.pad' op pads -3 and -2 crop axis 0 of f32[4] to a negative size}}
  %0 = "relax.pad"(%x) {pads = array<i64: -3, -2>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad_4(%x: tensor<0xf32>) {
  // expected-error@+1 {{'relax.pad' op axis 0 of f32[0] is empty: mode 'edge' has nothing to pad it with}}
  %0 = "relax.pad"(%x) {pads = array<i64: 1, 0>, mode = "edge"} : (tensor<0xf32>) -> tensor<0xf32>
  return
}

// -----

func.func @pad_5(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.pad' op attribute 'mode' must be one of 'constant', 'reflect', 'edge', 'wrap', got 'mirror'}}
  %0 = "relax.pad"(%x) {pads = array<i64: 1, 1>, mode = "mirror"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad_6(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.pad' op result is declared f32[4], but its operands and attributes make it f32[6]}}
  %0 = "relax.pad"(%x) {pads = array<i64: 1, 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad_7(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.pad' op attribute 'value' must be a number such as 0.5 : f64, got 0 : i64}}
  %0 = "relax.pad"(%x) {pads = array<i64: 1, 1>, value = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @concat_1() {
  // expected-error@+1 {{'relax.concat' op needs at least one operand}}
  %0 = "relax.concat"() {axis = 0 : i64, operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<f32>
  return
}

// -----

func.func @concat_2(%x0: tensor<2xf32>, %x1: tensor<2xf16>) {
  // expected-error@+1 {{'relax.concat' op operands must have one element type, got f32, f16}}
  %0 = "relax.concat"(%x0, %x1) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>, tensor<2xf16>) -> tensor<2xf32>
  return
}

// -----

func.func @concat_3(%x0: tensor<2xf32>, %x1: tensor<2x1xf32>) {
  // expected-error@+1 {{'relax.concat' op operands must have one rank, got f32[2] and f32[2, 1] (operand #1)}}
  %0 = "relax.concat"(%x0, %x1) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>, tensor<2x1xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @concat_4(%x0: tensor<2x3xf32>, %x1: tensor<3x3xf32>) {
  // expected-error@+1 {{'relax.concat' op operands #1 and #0, apart from axis 1, must have one shape, got [3] and [2]}}
  %0 = "relax.concat"(%x0, %x1) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @concat_5(%x0: tensor<f32>, %x1: tensor<f32>) {
  // expected-error@+1 {{'relax.concat' op operands must have rank 1 or more: stack joins scalars}}
  %0 = "relax.concat"(%x0, %x1) {axis = 0 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @concat_6(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.concat' op axis 1 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.concat"(%x0) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @concat_7(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.concat' op needs the attribute 'axis', an integer}}
  %0 = "relax.concat"(%x0) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @concat_8(%x0: tensor<2xf32>, %x1: tensor<3xf32>) {
  // expected-error@+1 {{'relax.concat' op result is declared f32[6], but its operands and attributes make it f32[5]}}
  %0 = "relax.concat"(%x0, %x1) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>, tensor<3xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @stack_1(%x0: tensor<2xf32>, %x1: tensor<3xf32>) {
  // expected-error@+1 {{'relax.stack' op operands #1 and #0 must have one shape, got [3] and [2]}}
  %0 = "relax.stack"(%x0, %x1) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @stack_2(%x0: tensor<2xf32>, %x1: tensor<2xi32>) {
  // expected-error@+1 {{'relax.stack' op operands must have one element type, got f32, i32}}
  %0 = "relax.stack"(%x0, %x1) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>, tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @stack_3(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.stack' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.stack"(%x0) {axis = 2 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @stack_4() {
  // expected-error@+1 {{'relax.stack' op needs at least one operand}}
  %0 = "relax.stack"() {operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<f32>
  return
}

// -----

func.func @stack_5(%x0: tensor<2xf32>, %x1: tensor<2xf32>) {
  // expected-error@+1 {{'relax.stack' op result is declared f32[4], but its operands and attributes make it f32[2, 2]}}
  %0 = "relax.stack"(%x0, %x1) {operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_1(%x: tensor<6xf32>) {
  // expected-error@+1 {{'relax.split' op axis 0 of f32[6] and the sum of the sizes [2, 2] must agree, got 6 and 4}}
  %0:2 = "relax.split"(%x) {axis = 0 : i64, sizes = [2, 2], resultSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<6xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @split_2(%x: tensor<?xf32, #relax.dims<["n"]>>) {
  // expected-error@+1 {{'relax.split' op axis 0 of f32[n] and the sum of the sizes [2, 2] must agree, got n and 4 (a dim that is always 4 must be declared 4)}}
  %0:2 = "relax.split"(%x) {axis = 0 : i64, sizes = [2, 2], resultSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>) -> (tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @split_3(%x: tensor<6xf32>) {
  // expected-error@+1 {{'relax.split' op needs at least one size}}
  %0 = "relax.split"(%x) {axis = 0 : i64, sizes = [], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @split_4(%x: tensor<6xf32>) {
  // expected-error@+1 {{'relax.split' op axis 1 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.split"(%x) {axis = 1 : i64, sizes = [6], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @split_5(%x: tensor<f32>) {
  // expected-error@+1 {{'relax.split' op axis 0 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.split"(%x) {axis = 0 : i64, sizes = [1], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @split_6(%x: tensor<6xf32>) {
  // expected-error@+1 {{'relax.split' op has 1 results, but its operands and attributes make 2}}
  %0 = "relax.split"(%x) {axis = 0 : i64, sizes = [3, 3], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<6xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @split_7(%x: tensor<6xf32>) {
  // expected-error@+1 {{'relax.split' op attribute 'sizes' must be dims such as [2, "batch"], got [7, -1]}}
  %0 = "relax.split"(%x) {axis = 0 : i64, sizes = [7, -1], resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<6xf32>) -> tensor<6xf32>
  return
}
