// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

// Calls, and the segment sizes of any operation.

func.func @no_callee(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_tir' op needs the attribute 'callee', a symbol such as @name}}
  %0 = "relax.call_tir"(%x0) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @callee_is_no_symbol(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_tir' op attribute 'callee' must be a symbol such as @name, got "kernel"}}
  %0 = "relax.call_tir"(%x0) {callee = "kernel", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @no_operand_segments(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_tir' op needs the attribute 'operandSegmentSizes', 16 numbers as array<i32: ...>}}
  %0 = "relax.call_tir"(%x0) {callee = @k, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @no_result_segments(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_tir' op needs the attribute 'resultSegmentSizes', 4 numbers as array<i32: ...>}}
  %0 = "relax.call_tir"(%x0) {callee = @k, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @segments_of_other_type(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_dps_packed' op needs the attribute 'operandSegmentSizes', 16 numbers as array<i32: ...>}}
  %0 = "relax.call_dps_packed"(%x0) {function = "f", operandSegmentSizes = [1], resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @segments_of_other_length(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_dps_packed' op attribute 'operandSegmentSizes' must be 16 numbers with the sum 1, got array<i32: 1>}}
  %0 = "relax.call_dps_packed"(%x0) {function = "f", operandSegmentSizes = array<i32: 1>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @segments_of_other_sum(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_dps_packed' op attribute 'operandSegmentSizes' must be 16 numbers with the sum 1, got array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}}
  %0 = "relax.call_dps_packed"(%x0) {function = "f", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @negative_segment(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_dps_packed' op attribute 'operandSegmentSizes' does not fit the operands (args: variadic), got array<i32: 2, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}}
  %0 = "relax.call_dps_packed"(%x0) {function = "f", operandSegmentSizes = array<i32: 2, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @segment_of_two_types(%x0: tensor<2xf32>, %x1: tensor<3xf32>) {
  // expected-error@+1 {{'relax.call_external' op attribute 'operandSegmentSizes' must count runs of equal types, got array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}}
  %0 = "relax.call_external"(%x0, %x1) {callee = @m::@f, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @result_segment_of_two_types(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_packed' op attribute 'resultSegmentSizes' must count runs of equal types, got array<i32: 2, 0, 0, 0>}}
  %0:2 = "relax.call_packed"(%x0) {function = "f", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 0, 0, 0>} : (tensor<2xf32>) -> (tensor<2xf32>, tensor<3xf32>)
  return
}

// -----

func.func @no_function(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_packed' op needs the attribute 'function', a string}}
  %0 = "relax.call_packed"(%x0) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @function_is_a_symbol(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_packed' op attribute 'function' must be a string, got @f}}
  %0 = "relax.call_packed"(%x0) {function = @f, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @optional_segment_too_long(%x0: tensor<2xf32>, %x1: tensor<2xf32>, %x2: tensor<2xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op attribute 'operandSegmentSizes' does not fit the operands (x: single, scale: optional, bias: optional), got array<i32: 1, 2, 0>}}
  %0 = "relax.layer_norm"(%x0, %x1, %x2) {operandSegmentSizes = array<i32: 1, 2, 0>} : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @single_segment_missing(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.layer_norm' op attribute 'operandSegmentSizes' does not fit the operands (x: single, scale: optional, bias: optional), got array<i32: 0, 1, 0>}}
  %0 = "relax.layer_norm"(%x0) {operandSegmentSizes = array<i32: 0, 1, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @too_many_results(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.exp' op needs 1 results, got 2}}
  %0:2 = "relax.exp"(%x0) {} : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @too_few_operands(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.add' op needs 2 operands, got 1}}
  %0 = "relax.add"(%x0) {} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @offset_of_two_dims(%x0: tensor<2x4xf32>) {
  // expected-error@+1 {{offset must be one position, got 2}}
  %0 = "relax.view_part"(%x0) {offset = [1, 0], shape = [4]} : (tensor<2x4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @part_behind_the_end(%x0: tensor<2x?xf32, #relax.dims<[2, "n"]>>) {
  // expected-error@+1 {{the part ends at element n + 4, which may lie behind the last one of f32[2, n]}}
  %0 = "relax.view_part"(%x0) {offset = [4], shape = ["n"]} : (tensor<2x?xf32, #relax.dims<[2, "n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return
}

// -----

func.func @sizes_without_symbols(%x0: tensor<2xf32>) {
  // expected-error@+1 {{'relax.call_tir' op sizes must have a dim for each of 2 symbols, got 1}}
  %0 = "relax.call_tir"(%x0) {callee = @k, symbols = ["a", "b"], sizes = ["n"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @row_at_a_float(%x0: tensor<2x4xf32>, %x1: tensor<f32>) {
  // expected-error@+1 {{position must be integer or unsigned integer, got f32}}
  %0 = "relax.view_row"(%x0, %x1) : (tensor<2x4xf32>, tensor<f32>) -> tensor<4xf32>
  return
}

// -----

func.func @rows_at_several_positions(%x0: tensor<2x4xf32>, %x1: tensor<3xi64>) {
  // expected-error@+1 {{expected a tensor with dims and a position without, got f32[2, 4] and i64[3]}}
  %0 = "relax.view_row"(%x0, %x1) : (tensor<2x4xf32>, tensor<3xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @row_of_none(%x0: tensor<0x4xf32>, %x1: tensor<i64>) {
  // expected-error@+1 {{x must have numbers for dims, the first one above 0, got f32[0, 4]}}
  %0 = "relax.view_row"(%x0, %x1) : (tensor<0x4xf32>, tensor<i64>) -> tensor<4xf32>
  return
}
