// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @unknown_axis(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op axes are 'spatial' or 'reduce', got 'parallel'}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "parallel"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @short_domain(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op domain has 1 dims, but there are 2 axes}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @negative_domain(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op attribute 'domain' must be dims such as [2, "batch"], got [8, -4]}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, -4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @no_name(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op needs the attribute 'name', a string}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @missing_map(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op needs a map for each of 1 operands and 1 outputs, got 1}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @map_is_a_number(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op map #0 must be an affine map or unit, got 3 : i64}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [3, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @map_of_other_axes(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op map #0 must map 2 axes to the 2 dims of tensor<8x4xf32>, got (d0) -> (d0, d0)}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0) -> (d0, d0)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @map_to_other_rank(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op map #0 must map 2 axes to the 2 dims of tensor<8x4xf32>, got (d0, d1) -> (d0)}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @map_with_symbol(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op map #0 must map 2 axes to the 2 dims of tensor<8x4xf32>, got (d0, d1)[s0] -> (d0, d1 + s0)}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1)[s0] -> (d0, d1 + s0)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @output_map_is_unit(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op map #1 is an output's and must be an affine map}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, unit], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @reads_beyond_the_end(%x: tensor<18xf32>) {
  // expected-error@+1 {{'tir.block' op map #0 reaches from 0 to 18 in dim 0 of tensor<18xf32>: d0 * 3 + d1}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %k: index, %a: f32, %acc: f32):
    %0 = arith.maximumf %acc, %a : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [6, 4], init = [0xFF800000 : f32], maps = [affine_map<(d0, d1) -> (d0 * 3 + d1)>, affine_map<(d0, d1) -> (d0)>], name = "windows", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<18xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @reads_before_the_begin(%x: tensor<8xf32>) {
  // expected-error@+1 {{'tir.block' op map #0 reaches from -1 to 8 in dim 0 of tensor<8xf32>: d0 - 1}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [10], init = [unit], maps = [affine_map<(d0) -> (d0 - 1)>, affine_map<(d0) -> (d0)>], name = "pad", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<10xf32>
  return
}

// -----

func.func @writes_beyond_the_end(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op map #1 reaches from 0 to 4 in dim 1 of tensor<8x4xf32>: d1}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 5], init = [unit], maps = [unit, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @outside_of_other_length(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op 'outside' needs an entry for each of 1 operands, got 2}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, outside = [unit, unit], resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @outside_of_other_type(%x: tensor<8xf32>) {
  // expected-error@+1 {{'tir.block' op entry #0 of 'outside' must be unit or a number of type f32, got 0 : i32}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial"], domain = [10], init = [unit], maps = [affine_map<(d0) -> (d0 - 1)>, affine_map<(d0) -> (d0)>], name = "pad", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, outside = [0 : i32], resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<10xf32>
  return
}

// -----

func.func @outside_of_a_whole_tensor(%x: tensor<100x4xf32>, %at: tensor<8xi64>) {
  // expected-error@+1 {{'tir.block' op entry #0 of 'outside' is for a tensor that the body reads itself and must be unit}}
  %r = "tir.block"(%x, %at) ({
  ^bb0(%i: index, %j: index, %table: tensor<100x4xf32>, %row: i64):
    %0 = arith.index_cast %row : i64 to index
    %1 = tensor.extract %table[%0, %j] : tensor<100x4xf32>
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [unit, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], name = "gather", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, outside = [0.000000e+00 : f32, unit], resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<100x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  return
}

// -----

func.func @init_of_other_length(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op 'init' needs an entry for each of 1 outputs, got 2}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit, unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @init_of_other_type(%x: tensor<128x256xf32>, %w: tensor<256x64xf32>) {
  // expected-error@+1 {{'tir.block' op entry #0 of 'init' must be unit or a number of type f32, got 0.000000e+00 : f64}}
  %r = "tir.block"(%x, %w) ({
  ^bb0(%i: index, %j: index, %k: index, %a: f32, %b: f32, %acc: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %acc, %0 : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial", "reduce"], domain = [128, 64, 256], init = [0.000000e+00 : f64], maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], name = "matmul", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<128x256xf32>, tensor<256x64xf32>) -> tensor<128x64xf32>
  return
}

// -----

func.func @init_without_reduction(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op an output has an initial value exactly when the block has a reduction axis}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [0.000000e+00 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @reduction_without_init(%x: tensor<128x256xf32>, %w: tensor<256x64xf32>) {
  // expected-error@+1 {{'tir.block' op an output has an initial value exactly when the block has a reduction axis}}
  %r = "tir.block"(%x, %w) ({
  ^bb0(%i: index, %j: index, %k: index, %a: f32, %b: f32, %acc: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %acc, %0 : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial", "reduce"], domain = [128, 64, 256], init = [unit], maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], name = "matmul", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<128x256xf32>, tensor<256x64xf32>) -> tensor<128x64xf32>
  return
}

// -----

func.func @scalar_operand(%x: f32) {
  // expected-error@+1 {{'tir.block' op a block with results is over ranked tensors, got f32}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> tensor<8x4xf32>
  return
}

// -----

func.func @buffer_operand_with_result(%x: memref<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op a block with results is over ranked tensors, got memref<8x4xf32>}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (memref<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @tensor_operand_without_result(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op a block without results is over buffers (memref), got tensor<8x4xf32>}}
  "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (tensor<8x4xf32>) -> ()
  return
}

// -----

func.func @no_output(%x: memref<8x4xf32>, %y: memref<8xf32>) {
  // expected-error@+1 {{'tir.block' op 'init' has an entry for each output, 0, but there are fewer outputs or none}}
  "tir.block"(%x, %y) ({
  ^bb0(%i: index, %j: index, %a: f32, %acc: f32):
    %0 = arith.addf %acc, %a : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "rows", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8x4xf32>, memref<8xf32>) -> ()
  return
}

// -----

func.func @too_few_buffers(%x: memref<8x4xf32>, %y: memref<8xf32>) {
  // expected-error@+1 {{'tir.block' op 'init' has an entry for each output, 3, but there are fewer outputs or none}}
  "tir.block"(%x, %y) ({
  ^bb0(%i: index, %j: index, %a: f32, %acc: f32):
    %0 = arith.addf %acc, %a : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [unit, unit, unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "rows", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8x4xf32>, memref<8xf32>) -> ()
  return
}

// -----

func.func @body_takes_too_little(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op the body must take (index, index, f32), got (index, f32)}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @body_takes_other_types(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op the body must take (index, index, f32), got (index, index, f64)}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f64):
    %0 = "tir.exp"(%a) : (f64) -> f64
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f64) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @body_without_accumulator(%x: memref<8x4xf32>, %y: memref<8xf32>) {
  // expected-error@+1 {{'tir.block' op the body must take (index, index, f32, f32), got (index, index, f32)}}
  "tir.block"(%x, %y) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = arith.addf %a, %a : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [0.000000e+00 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "rows", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8x4xf32>, memref<8xf32>) -> ()
  return
}

// -----

func.func @yields_other_type(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op the body must yield an element of each output, (f32), got (i32)}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = arith.fptosi %a : f32 to i32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (i32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @yields_too_little(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op the body must yield an element of each output, (f32, i64), got (f32)}}
  %r:2 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32, %best: f32, %where: i64):
    %0 = arith.cmpf ogt, %a, %best : f32
    %1 = arith.select %0, %a, %best : f32
    %2 = arith.index_cast %j : index to i64
    %3 = arith.select %0, %2, %where : i64
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [0xFF800000 : f32, 0], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], name = "argmax", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<8x4xf32>) -> (tensor<8xf32>, tensor<8xi64>)
  return
}

// -----

func.func @no_yield(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op the body must end with tir.yield}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    llvm.unreachable
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @empty_body(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op needs a body of one block, got 0}}
  %r = "tir.block"(%x) ({
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @two_blocks(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{'tir.block' op needs a body of one block, got 2}}
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  ^bb1:
    llvm.unreachable
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}
