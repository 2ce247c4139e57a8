// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @gather_1(%x: tensor<4x5xf32>, %indices: tensor<3xf32>) {
  // expected-error@+1 {{'relax.gather' op indices must be integer or unsigned integer, got f32}}
  %0 = "relax.gather"(%x, %indices) : (tensor<4x5xf32>, tensor<3xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @nothing_to_gather(%x: tensor<0x2xf32>, %i: tensor<3xi64>) {
  // expected-error@+1 {{'relax.gather' op axis 0 of the operand f32[0, 2], which i64[3] indexes, is empty}}
  %0 = "relax.gather"(%x, %i) : (tensor<0x2xf32>, tensor<3xi64>) -> tensor<3x2xf32>
  return
}

// -----

func.func @gather_2(%x: tensor<4x5xf32>, %indices: tensor<3xi64>) {
  // expected-error@+1 {{'relax.gather' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.gather"(%x, %indices) {axis = 2 : i64} : (tensor<4x5xf32>, tensor<3xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_3(%x: tensor<f32>, %indices: tensor<3xi64>) {
  // expected-error@+1 {{'relax.gather' op axis 0 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.gather"(%x, %indices) : (tensor<f32>, tensor<3xi64>) -> tensor<f32>
  return
}

// -----

func.func @gather_4(%x: tensor<4x5xf32>, %indices: tensor<3xi64>) {
  // expected-error@+1 {{'relax.gather' op result is declared f32[4, 3], but its operands and attributes make it f32[3, 5]}}
  %0 = "relax.gather"(%x, %indices) : (tensor<4x5xf32>, tensor<3xi64>) -> tensor<4x3xf32>
  return
}

// -----

func.func @gather_elements_1(%x: tensor<4x5xf32>, %indices: tensor<3xi64>) {
  // expected-error@+1 {{'relax.gather_elements' op indices must have the rank of the operand f32[4, 5], got i64[3]}}
  %0 = "relax.gather_elements"(%x, %indices) : (tensor<4x5xf32>, tensor<3xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_elements_2(%x: tensor<4x5xf32>, %indices: tensor<3x6xi64>) {
  // expected-error@+1 {{'relax.gather_elements' op dim 1 of indices i64[3, 6] must not exceed that of the operand f32[4, 5]}}
  %0 = "relax.gather_elements"(%x, %indices) : (tensor<4x5xf32>, tensor<3x6xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_elements_3(%x: tensor<4x5xf32>, %indices: tensor<3x5xi1>) {
  // expected-error@+1 {{'relax.gather_elements' op indices must be integer or unsigned integer, got bool}}
  %0 = "relax.gather_elements"(%x, %indices) : (tensor<4x5xf32>, tensor<3x5xi1>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_elements_4(%x: tensor<4x5xf32>, %indices: tensor<3x5xi64>) {
  // expected-error@+1 {{'relax.gather_elements' op axis -3 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.gather_elements"(%x, %indices) {axis = -3 : i64} : (tensor<4x5xf32>, tensor<3x5xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_elements_5(%x: tensor<f32>, %indices: tensor<i64>) {
  // expected-error@+1 {{'relax.gather_elements' op axis 0 is outside a tensor of rank 0, which has no axes}}
  %0 = "relax.gather_elements"(%x, %indices) : (tensor<f32>, tensor<i64>) -> tensor<f32>
  return
}

// -----

func.func @gather_nd_1(%x: tensor<4x5xf32>, %indices: tensor<3x3xi64>) {
  // expected-error@+1 {{'relax.gather_nd' op points of 3 coordinates do not fit the 2 dims of f32[4, 5] to index}}
  %0 = "relax.gather_nd"(%x, %indices) : (tensor<4x5xf32>, tensor<3x3xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_2(%x: tensor<4x5xf32>, %indices: tensor<?xi64, #relax.dims<["n"]>>) {
  // expected-error@+1 {{'relax.gather_nd' op the last dim of indices, the size of a point, must be a number, got i64[n]}}
  %0 = "relax.gather_nd"(%x, %indices) : (tensor<4x5xf32>, tensor<?xi64, #relax.dims<["n"]>>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_3(%x: tensor<4x5xf32>, %indices: tensor<i64>) {
  // expected-error@+1 {{'relax.gather_nd' op the last dim of indices, the size of a point, must be a number, got i64[]}}
  %0 = "relax.gather_nd"(%x, %indices) : (tensor<4x5xf32>, tensor<i64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_4(%x: tensor<4x5xf32>, %indices: tensor<3x1xi64>) {
  // expected-error@+1 {{'relax.gather_nd' op batch dim 0 of f32[4, 5] and indices i64[3, 1] must agree, got 4 and 3}}
  %0 = "relax.gather_nd"(%x, %indices) {batch_dims = 1 : i64} : (tensor<4x5xf32>, tensor<3x1xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_5(%x: tensor<4x5xf32>, %indices: tensor<3x1xi64>) {
  // expected-error@+1 {{'relax.gather_nd' op batch_dims must be less than the ranks of f32[4, 5] and i64[3, 1], got 2}}
  %0 = "relax.gather_nd"(%x, %indices) {batch_dims = 2 : i64} : (tensor<4x5xf32>, tensor<3x1xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_6(%x: tensor<4x5xf32>, %indices: tensor<3x1xi64>) {
  // expected-error@+1 {{'relax.gather_nd' op batch_dims must be less than the ranks of f32[4, 5] and i64[3, 1], got -1}}
  %0 = "relax.gather_nd"(%x, %indices) {batch_dims = -1 : i64} : (tensor<4x5xf32>, tensor<3x1xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_7(%x: tensor<4x5xf32>, %indices: tensor<3x1xf32>) {
  // expected-error@+1 {{'relax.gather_nd' op indices must be integer or unsigned integer, got f32}}
  %0 = "relax.gather_nd"(%x, %indices) : (tensor<4x5xf32>, tensor<3x1xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_nd_8(%x: tensor<4x5xf32>, %indices: tensor<3x0xi64>) {
  // expected-error@+1 {{'relax.gather_nd' op points of 0 coordinates do not fit the 2 dims of f32[4, 5] to index}}
  %0 = "relax.gather_nd"(%x, %indices) : (tensor<4x5xf32>, tensor<3x0xi64>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scatter_elements_1(%x: tensor<4xf32>, %indices: tensor<2xi64>, %updates: tensor<3xf32>) {
  // expected-error@+1 {{'relax.scatter_elements' op updates and indices must have one shape, got [3] and [2]}}
  %0 = "relax.scatter_elements"(%x, %indices, %updates) : (tensor<4xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_elements_2(%x: tensor<4xf32>, %indices: tensor<2xi64>, %updates: tensor<2xf16>) {
  // expected-error@+1 {{'relax.scatter_elements' op operand and updates must have one element type, got f32, f16}}
  %0 = "relax.scatter_elements"(%x, %indices, %updates) : (tensor<4xf32>, tensor<2xi64>, tensor<2xf16>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_elements_3(%x: tensor<4xf32>, %indices: tensor<2xi64>, %updates: tensor<2xf32>) {
  // expected-error@+1 {{'relax.scatter_elements' op attribute 'reduction' must be one of 'none', 'add', 'mul', 'max', 'min', got 'sub'}}
  %0 = "relax.scatter_elements"(%x, %indices, %updates) {reduction = "sub"} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_elements_4(%x: tensor<4xf32>, %indices: tensor<2xi64>, %updates: tensor<2xf32>) {
  // expected-error@+1 {{'relax.scatter_elements' op axis 1 is outside a tensor of rank 1: expected -1 to 0}}
  %0 = "relax.scatter_elements"(%x, %indices, %updates) {axis = 1 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_elements_5(%x: tensor<4xf32>, %indices: tensor<2xf32>, %updates: tensor<2xf32>) {
  // expected-error@+1 {{'relax.scatter_elements' op indices must be integer or unsigned integer, got f32}}
  %0 = "relax.scatter_elements"(%x, %indices, %updates) : (tensor<4xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_nd_1(%x: tensor<4x5xf32>, %indices: tensor<3x1xi64>, %updates: tensor<3x4xf32>) {
  // expected-error@+1 {{'relax.scatter_nd' op updates and the slices of f32[4, 5] at indices i64[3, 1] must have one shape, got [3, 4] and [3, 5]}}
  %0 = "relax.scatter_nd"(%x, %indices, %updates) : (tensor<4x5xf32>, tensor<3x1xi64>, tensor<3x4xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scatter_nd_2(%x: tensor<4x5xf32>, %indices: tensor<3x1xi64>, %updates: tensor<3x5xi32>) {
  // expected-error@+1 {{'relax.scatter_nd' op operand and updates must have one element type, got f32, i32}}
  %0 = "relax.scatter_nd"(%x, %indices, %updates) : (tensor<4x5xf32>, tensor<3x1xi64>, tensor<3x5xi32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scatter_nd_3(%x: tensor<4x5xf32>, %indices: tensor<3x1xf32>, %updates: tensor<3x5xf32>) {
  // expected-error@+1 {{'relax.scatter_nd' op indices must be integer or unsigned integer, got f32}}
  %0 = "relax.scatter_nd"(%x, %indices, %updates) : (tensor<4x5xf32>, tensor<3x1xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scatter_nd_4(%x: tensor<4x5xf32>, %indices: tensor<3x1xi64>, %updates: tensor<3x5xf32>) {
  // expected-error@+1 {{'relax.scatter_nd' op attribute 'reduction' must be one of 'none', 'add', 'mul', 'max', 'min', got 'mean'}}
  %0 = "relax.scatter_nd"(%x, %indices, %updates) {reduction = "mean"} : (tensor<4x5xf32>, tensor<3x1xi64>, tensor<3x5xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scatter_nd_5(%x: tensor<4x5xf32>, %indices: tensor<3x3xi64>, %updates: tensor<3xf32>) {
  // expected-error@+1 {{'relax.scatter_nd' op points of 3 coordinates do not fit the 2 dims of f32[4, 5] to index}}
  %0 = "relax.scatter_nd"(%x, %indices, %updates) : (tensor<4x5xf32>, tensor<3x3xi64>, tensor<3xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @one_hot_1(%indices: tensor<3xi64>, %values: tensor<3xf32>) {
  // expected-error@+1 {{'relax.one_hot' op values must be [off, on], a vector of 2, got f32[3]}}
  %0 = "relax.one_hot"(%indices, %values) {depth = 4 : i64} : (tensor<3xi64>, tensor<3xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @one_hot_2(%indices: tensor<3xi64>, %values: tensor<2x1xf32>) {
  // expected-error@+1 {{'relax.one_hot' op values must be [off, on], a vector of 2, got f32[2, 1]}}
  %0 = "relax.one_hot"(%indices, %values) {depth = 4 : i64} : (tensor<3xi64>, tensor<2x1xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @one_hot_3(%indices: tensor<3xi64>, %values: tensor<2xf32>) {
  // expected-error@+1 {{'relax.one_hot' op needs the attribute 'depth', an integer}}
  %0 = "relax.one_hot"(%indices, %values) : (tensor<3xi64>, tensor<2xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @one_hot_4(%indices: tensor<3xi64>, %values: tensor<2xf32>) {
  // expected-error@+1 {{'relax.one_hot' op depth must not be negative, got -4}}
  %0 = "relax.one_hot"(%indices, %values) {depth = -4 : i64} : (tensor<3xi64>, tensor<2xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @one_hot_5(%indices: tensor<3xi64>, %values: tensor<2xf32>) {
  // expected-error@+1 {{'relax.one_hot' op axis 2 is outside a tensor of rank 2: expected -2 to 1}}
  %0 = "relax.one_hot"(%indices, %values) {depth = 4 : i64, axis = 2 : i64} : (tensor<3xi64>, tensor<2xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @one_hot_6(%indices: tensor<3xi1>, %values: tensor<2xf32>) {
  // expected-error@+1 {{'relax.one_hot' op indices must be integer, unsigned integer or floating point, got bool}}
  %0 = "relax.one_hot"(%indices, %values) {depth = 4 : i64} : (tensor<3xi1>, tensor<2xf32>) -> tensor<3xi1>
  return
}

// -----

func.func @gather_elements_6(%x0: tensor<0x8xf32>, %x1: tensor<3x8xi32>) {
  // expected-error@+1 {{'relax.gather_elements' op axis 0 of the operand f32[0, 8], which i32[3, 8] indexes, is empty}}
  %0 = "relax.gather_elements"(%x0, %x1) : (tensor<0x8xf32>, tensor<3x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @gather_nd_9(%x0: tensor<0x8xf32>, %x1: tensor<5x2xi64>) {
  // expected-error@+1 {{'relax.gather_nd' op axis 0 of the operand f32[0, 8], which i64[5, 2] indexes, is empty}}
  %0 = "relax.gather_nd"(%x0, %x1) : (tensor<0x8xf32>, tensor<5x2xi64>) -> tensor<5x3xf32>
  return
}
