// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @exp_1(%x: tensor<4xi32>) {
  // expected-error@+1 {{'relax.exp' op operand must be floating point, got i32}}
  %0 = "relax.exp"(%x) : (tensor<4xi32>) -> tensor<4xi32>
  return
}

// -----

func.func @abs(%x: tensor<4xi1>) {
  // expected-error@+1 {{'relax.abs' op operand must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.abs"(%x) : (tensor<4xi1>) -> tensor<4xi1>
  return
}

// -----

func.func @logical_not(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.logical_not' op operand must be bool, got f32}}
  %0 = "relax.logical_not"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @bitwise_not(%x: tensor<4xf32>) {
  // expected-error@+1 {{'relax.bitwise_not' op operand must be integer, unsigned integer or bool, got f32}}
  %0 = "relax.bitwise_not"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @isnan_1(%x: tensor<4xi32>) {
  // expected-error@+1 {{'relax.isnan' op operand must be floating point, got i32}}
  %0 = "relax.isnan"(%x) : (tensor<4xi32>) -> tensor<4xi1>
  return
}

// -----

func.func @exp_2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.exp' op result is declared f32[2, 4], but its operands and attributes make it f32[2, 3]}}
  %0 = "relax.exp"(%x) : (tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @exp_3(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{'relax.exp' op result is declared f64[2, 3], but its operands and attributes make it f32[2, 3]}}
  %0 = "relax.exp"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf64>
  return
}

// -----

func.func @exp_4(%x: tensor<?xf32, #relax.dims<["n"]>>) {
  // expected-error@+1 {{'relax.exp' op result is declared f32[m], but its operands and attributes make it f32[n]}}
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["m"]>>
  return
}

// -----

func.func @isnan_2(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.isnan' op result is declared f32[2], but its operands and attributes make it bool[2]}}
  %0 = "relax.isnan"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @exp_5(%x: tensor<*xf32>) {
  // expected-error@+1 {{'relax.exp' op operand 'x' must be a ranked tensor of a known element type, got tensor<*xf32>}}
  %0 = "relax.exp"(%x) : (tensor<*xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @exp_6(%x: tensor<2xcomplex<f32>>) {
  // expected-error@+1 {{'relax.exp' op operand 'x' must be a ranked tensor of a known element type, got tensor<2xcomplex<f32>>}}
  %0 = "relax.exp"(%x) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  return
}

// -----

func.func @exp_7(%x: f32) {
  // expected-error@+1 {{'relax.exp' op operand 'x' must be a ranked tensor of a known element type, got f32}}
  %0 = "relax.exp"(%x) : (f32) -> tensor<f32>
  return
}

// -----

func.func @exp_8(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.exp' op result is declared tensor<*xf32>, but its operands and attributes make it f32[2]}}
  %0 = "relax.exp"(%x) : (tensor<2xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @exp_9(%x: tensor<?x2xf32, #relax.dims<["n"]>>) {
  // expected-error@+1 {{'relax.exp' op tensor<?x2xf32, #relax.dims<["n"]>> has 2 dims, but its encoding lists 1}}
  %0 = "relax.exp"(%x) : (tensor<?x2xf32, #relax.dims<["n"]>>) -> tensor<?x2xf32, #relax.dims<["n"]>>
  return
}

// -----

func.func @exp_10(%x: tensor<?xf32, #relax.dims<[3]>>) {
  // expected-error@+1 {{'relax.exp' op dim 0 of tensor<?xf32, #relax.dims<[3]>> is ?, but its encoding has 3}}
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<[3]>>) -> tensor<?xf32, #relax.dims<[3]>>
  return
}

// -----

func.func @exp_11(%x: tensor<?xf32, #relax.dims<["n +"]>>) {
  // expected-error@+1 {{'relax.exp' op tensor<?xf32, #relax.dims<["n +"]>> has an encoding that is not a list of dims: 'n +' is not a dim expression}}
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n +"]>>) -> tensor<?xf32, #relax.dims<["n +"]>>
  return
}

// -----

func.func @exp_12(%x: tensor<?xf32, #relax.dims<4 : i64>>) {
  // expected-error@+1 {{'relax.exp' op tensor<?xf32, #relax.dims<4 : i64>> has an encoding that is not a list of dims}}
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<4 : i64>>) -> tensor<?xf32, #relax.dims<4 : i64>>
  return
}

// -----

func.func @exp_13(%x: tensor<2xf32>) {
  // expected-error@+1 {{'relax.exp' op has no attribute 'alpha'; it has: none}}
  %0 = "relax.exp"(%x) {alpha = 1.0} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @add_1(%lhs: tensor<2xf32>, %rhs: tensor<2xf64>) {
  // expected-error@+1 {{'relax.add' op operands must have one element type, got f32, f64}}
  %0 = "relax.add"(%lhs, %rhs) : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xf32>
  return
}

// -----

func.func @add_2(%lhs: tensor<2xi1>, %rhs: tensor<2xi1>) {
  // expected-error@+1 {{'relax.add' op operands must be floating point, integer or unsigned integer, got bool}}
  %0 = "relax.add"(%lhs, %rhs) : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @add_3(%lhs: tensor<2x3xf32>, %rhs: tensor<2xf32>) {
  // expected-error@+1 {{'relax.add' op shapes [2, 3] and [2] do not broadcast: dims 3 and 2 are neither equal nor 1}}
  %0 = "relax.add"(%lhs, %rhs) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @add_4(%lhs: tensor<?xf32, #relax.dims<["n"]>>, %rhs: tensor<?xf32, #relax.dims<["m"]>>) {
  // expected-error@+1 {{'relax.add' op shapes [n] and [m] do not broadcast: dims n and m are neither equal nor 1 (dims that are always equal must have one name)}}
  %0 = "relax.add"(%lhs, %rhs) : (tensor<?xf32, #relax.dims<["n"]>>, tensor<?xf32, #relax.dims<["m"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return
}

// -----

func.func @add_5(%lhs: tensor<?xf32, #relax.dims<["n"]>>, %rhs: tensor<4xf32>) {
  // expected-error@+1 {{'relax.add' op shapes [n] and [4] do not broadcast: dims n and 4 are neither equal nor 1 (a dim that is always 4 must be declared 4)}}
  %0 = "relax.add"(%lhs, %rhs) : (tensor<?xf32, #relax.dims<["n"]>>, tensor<4xf32>) -> tensor<?xf32, #relax.dims<["n"]>>
  return
}

// -----

func.func @atan2(%lhs: tensor<2xi32>, %rhs: tensor<2xi32>) {
  // expected-error@+1 {{'relax.atan2' op operands must be floating point, got i32}}
  %0 = "relax.atan2"(%lhs, %rhs) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
  return
}

// -----

func.func @logical_and(%lhs: tensor<2xi8>, %rhs: tensor<2xi8>) {
  // expected-error@+1 {{'relax.logical_and' op operands must be bool, got i8}}
  %0 = "relax.logical_and"(%lhs, %rhs) : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi8>
  return
}

// -----

func.func @bitwise_or(%lhs: tensor<2xf32>, %rhs: tensor<2xf32>) {
  // expected-error@+1 {{'relax.bitwise_or' op operands must be integer, unsigned integer or bool, got f32}}
  %0 = "relax.bitwise_or"(%lhs, %rhs) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @shift_left(%lhs: tensor<2xi1>, %rhs: tensor<2xi1>) {
  // expected-error@+1 {{'relax.shift_left' op operands must be integer or unsigned integer, got bool}}
  %0 = "relax.shift_left"(%lhs, %rhs) : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @less_1(%lhs: tensor<2xf32>, %rhs: tensor<2xi32>) {
  // expected-error@+1 {{'relax.less' op operands must have one element type, got f32, i32}}
  %0 = "relax.less"(%lhs, %rhs) : (tensor<2xf32>, tensor<2xi32>) -> tensor<2xi1>
  return
}

// -----

func.func @less_2(%lhs: tensor<2xf32>, %rhs: tensor<3xf32>) {
  // expected-error@+1 {{'relax.less' op shapes [2] and [3] do not broadcast: dims 2 and 3 are neither equal nor 1}}
  %0 = "relax.less"(%lhs, %rhs) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xi1>
  return
}

// -----

func.func @less_3(%lhs: tensor<2xf32>, %rhs: tensor<2xf32>) {
  // expected-error@+1 {{'relax.less' op result is declared f32[2], but its operands and attributes make it bool[2]}}
  %0 = "relax.less"(%lhs, %rhs) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @where_1(%condition: tensor<2xi32>, %x: tensor<2xf32>, %y: tensor<2xf32>) {
  // expected-error@+1 {{'relax.where' op condition must be bool, got i32}}
  %0 = "relax.where"(%condition, %x, %y) : (tensor<2xi32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @where_2(%condition: tensor<2xi1>, %x: tensor<2xf32>, %y: tensor<2xi32>) {
  // expected-error@+1 {{'relax.where' op x and y must have one element type, got f32, i32}}
  %0 = "relax.where"(%condition, %x, %y) : (tensor<2xi1>, tensor<2xf32>, tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @where_3(%condition: tensor<2xi1>, %x: tensor<3xf32>, %y: tensor<f32>) {
  // expected-error@+1 {{'relax.where' op shapes [2] and [3] and [] do not broadcast: dims 2 and 3 are neither equal nor 1}}
  %0 = "relax.where"(%condition, %x, %y) : (tensor<2xi1>, tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
  return
}
