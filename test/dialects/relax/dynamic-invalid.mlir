// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @bind_dims_1(%x0: tensor<i64>) {
  // expected-error@+1 {{'relax.bind_dims' op values must be a tensor<0xi64>, an element per symbol, got i64[]}}
  "relax.bind_dims"(%x0) {symbols = [], what = "how many"} : (tensor<i64>) -> ()
  return
}

// -----

func.func @bind_dims_2(%v: tensor<2xi64>) {
  // expected-error@+1 {{'relax.bind_dims' op '2' is not a name for a dim}}
  "relax.bind_dims"(%v) {symbols = ["a", "2"]} : (tensor<2xi64>) -> ()
  return
}

// -----

func.func @bind_dims_3(%v: tensor<2xi64>) {
  // expected-error@+1 {{'relax.bind_dims' op symbols must be different names}}
  "relax.bind_dims"(%v) {symbols = ["a", "a"]} : (tensor<2xi64>) -> ()
  return
}

// -----

func.func @bind_dims_4(%x0: tensor<2xi64>) {
  // expected-error@+1 {{'relax.bind_dims' op bounds must have an entry for each of 2 symbols, got 1}}
  "relax.bind_dims"(%x0) {bounds = [4], symbols = ["a", "b"]} : (tensor<2xi64>) -> ()
  return
}

// -----

func.func @nonzero_1(%x0: tensor<f32>) {
  // expected-error@+1 {{'relax.nonzero' op count must be one dim, got 0}}
  %0 = "relax.nonzero"(%x0) {count = []} : (tensor<f32>) -> tensor<2x?xi64, #relax.dims<[2, "n"]>>
  return
}

// -----

func.func @pad_at_1(%x0: tensor<4xf32>, %x1: tensor<i64>, %x2: tensor<f32>) {
  // expected-error@+1 {{'relax.pad_at' op padding of f32[4] needs i64[1] and 1 dims, got i64[] and 2 dims}}
  %0 = "relax.pad_at"(%x0, %x1, %x2) {shape = [6, 7]} : (tensor<4xf32>, tensor<i64>, tensor<f32>) -> tensor<6x7xf32>
  return
}

// -----

func.func @pad_at_2(%x0: tensor<4x5xf32>, %x1: tensor<2xi64>, %x2: tensor<i1>) {
  // expected-error@+1 {{'relax.pad_at' op value must be f32 of rank 0, got bool[]}}
  %0 = "relax.pad_at"(%x0, %x1, %x2) {shape = [6, 7]} : (tensor<4x5xf32>, tensor<2xi64>, tensor<i1>) -> tensor<6x7xf32>
  return
}

// -----

func.func @resize_at_1(%x0: tensor<5xf32>, %x1: tensor<f32>, %x2: tensor<4xf32>) {
  // expected-error@+1 {{'relax.resize_at' op shape and scales must have 1 elements for f32[5], and roi twice as many}}
  %0 = "relax.resize_at"(%x0, %x1, %x2) {shape = [8, 9]} : (tensor<5xf32>, tensor<f32>, tensor<4xf32>) -> tensor<8x9xf32>
  return
}

// -----

func.func @resize_at_2(%x0: tensor<0x5xf32>, %x1: tensor<2xf32>, %x2: tensor<4xf32>) {
  // expected-error@+1 {{'relax.resize_at' op axis 0 of the operand f32[0, 5], which is resized to 8, is empty}}
  %0 = "relax.resize_at"(%x0, %x1, %x2) {shape = [8, 9]} : (tensor<0x5xf32>, tensor<2xf32>, tensor<4xf32>) -> tensor<8x9xf32>
  return
}

// -----

func.func @slice_at_1(%x0: tensor<f32>, %x1: tensor<3x2xi64>) {
  // expected-error@+1 {{'relax.slice_at' op a slice of f32[] needs i64[3, 0] and 0 dims, got i64[3, 2] and 2}}
  %0 = "relax.slice_at"(%x0, %x1) {shape = [2, 0]} : (tensor<f32>, tensor<3x2xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @slice_at_2(%x0: tensor<4x5xi8>, %x1: tensor<3x2xi64>) {
  // expected-error@+1 {{'relax.slice_at' op a slice of 9 elements is larger than axis 0 of the operand i8[4, 5]}}
  %0 = "relax.slice_at"(%x0, %x1) {shape = [9, 3]} : (tensor<4x5xi8>, tensor<3x2xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @slice_bounds_1(%x0: tensor<i64>, %x1: tensor<i64>, %x2: tensor<2xi64>, %x3: tensor<i64>, %x4: tensor<2xi64>) {
  // expected-error@+1 {{'relax.slice_bounds' op operands must be vectors, got i64[], i64[2], i64[], i64[2]}}
  %0 = "relax.slice_bounds"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<i64>, tensor<i64>, tensor<2xi64>, tensor<i64>, tensor<2xi64>) -> tensor<3x3xi64>
  return
}

// -----

func.func @slice_bounds_2(%x0: tensor<3xi64>, %x1: tensor<2xi32>, %x2: tensor<2xi8>, %x3: tensor<3xi64>, %x4: tensor<2xi64>) {
  // expected-error@+1 {{'relax.slice_bounds' op the sizes of starts, ends, axes and steps (i32[2], i8[2], i64[3], i64[2]) must agree, got 2 and 3}}
  %0 = "relax.slice_bounds"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<3xi64>, tensor<2xi32>, tensor<2xi8>, tensor<3xi64>, tensor<2xi64>) -> tensor<3x3xi64>
  return
}

// -----

func.func @slice_bounds_3(%x0: tensor<3xi64>, %x1: tensor<2xi1>, %x2: tensor<2xi64>, %x3: tensor<2xi64>, %x4: tensor<2xi64>) {
  // expected-error@+1 {{'relax.slice_bounds' op operands must be of i64}}
  %0 = "relax.slice_bounds"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<3xi64>, tensor<2xi1>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<3x3xi64>
  return
}

// -----

func.func @slice_bounds_4(%x0: tensor<1xi64>, %x1: tensor<2xi64>, %x2: tensor<2xi64>, %x3: tensor<2xi64>, %x4: tensor<2xi64>) {
  // expected-error@+1 {{'relax.slice_bounds' op starts i64[2] must not be more than the axes, 1}}
  %0 = "relax.slice_bounds"(%x0, %x1, %x2, %x3, %x4) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<1xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<3x3xi64>
  return
}

// -----

func.func @slice_dims_1(%x0: tensor<f32>) {
  // expected-error@+1 {{'relax.slice_dims' op a slice of f32[] needs begin, shape and strides for each of its 0 axes}}
  %0 = "relax.slice_dims"(%x0) {begin = [], shape = [1], strides = array<i64: 1>} : (tensor<f32>) -> tensor<1xf32>
  return
}

// -----

func.func @slice_dims_2(%x0: tensor<3xf32>) {
  // expected-error@+1 {{'relax.slice_dims' op strides must not be 0, got [0]}}
  %0 = "relax.slice_dims"(%x0) {begin = [3], shape = [1], strides = array<i64: 0>} : (tensor<3xf32>) -> tensor<1xf32>
  return
}

// -----

func.func @slice_dims_3(%x0: tensor<5xf16>) {
  // expected-error@+1 {{'relax.slice_dims' op 1 elements from element 9, are not within axis 0 of f16[5]}}
  %0 = "relax.slice_dims"(%x0) {begin = [9], shape = [1], strides = array<i64: 1>} : (tensor<5xf16>) -> tensor<1xf32>
  return
}

// -----

func.func @spread_axes_1(%x0: tensor<f32>) {
  // expected-error@+1 {{'relax.spread_axes' op outer and inner must have a dim for each of the 0 axes of f32[]}}
  %0 = "relax.spread_axes"(%x0) {inner = [1], outer = [4, 1]} : (tensor<f32>) -> tensor<4x1x1x5xf32>
  return
}

// -----

func.func @spread_axes_2(%x0: tensor<4x3xi8>) {
  // expected-error@+1 {{'relax.spread_axes' op axis 1 of i8[4, 3] is split into 1 and 5: one must be 3, the other one 1}}
  %0 = "relax.spread_axes"(%x0) {inner = [1, 5], outer = [2, 1]} : (tensor<4x3xi8>) -> tensor<4x1x1x5xf32>
  return
}

// -----

func.func @steps_1(%x0: tensor<i1>, %x1: tensor<f32>) {
  // expected-error@+1 {{'relax.steps' op start and delta must have one element type, got bool, f32}}
  %0 = "relax.steps"(%x0, %x1) {shape = []} : (tensor<i1>, tensor<f32>) -> tensor<?xf32, #relax.dims<["m"]>>
  return
}

// -----

func.func @steps_2(%x0: tensor<f32>, %x1: tensor<f32>) {
  // expected-error@+1 {{'relax.steps' op start and delta must have rank 0, and shape one dim, got f32[], f32[] and 0}}
  %0 = "relax.steps"(%x0, %x1) {shape = []} : (tensor<f32>, tensor<f32>) -> tensor<?xf32, #relax.dims<["m"]>>
  return
}
