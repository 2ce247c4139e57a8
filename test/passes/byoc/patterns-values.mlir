// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --verify-diagnostics --pass-pipeline='builtin.module(fuse-by-pattern{target=attr functions=attr explain},fuse-by-pattern{target=attr-set functions=attr_set explain},fuse-by-pattern{target=attr-predicate functions=attr_predicate explain},fuse-by-pattern{target=dtype functions=dtype explain},fuse-by-pattern{target=shape functions=shape explain},fuse-by-pattern{target=rank functions=rank explain},fuse-by-pattern{target=const functions=const explain},fuse-by-pattern{target=const-value functions=const_value explain},fuse-by-pattern{target=var functions=var explain},fuse-by-pattern{target=var-name functions=var_name explain},fuse-by-pattern{target=operand-name functions=operand_name explain},fuse-by-pattern{target=operand-absent functions=operand_absent explain},fuse-by-pattern{target=result functions=result explain},fuse-by-pattern{target=where functions=where explain},fuse-by-pattern{target=packed functions=packed explain})' | FileCheck %s

// What one value must look like: of two operators the first fits, the second does not and says why.

// CHECK-LABEL: func.func @attr(
// CHECK:         call @attr_conv_0(
// CHECK:         "relax.conv"
func.func @attr(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>) -> (tensor<1x4x3x3xf32>, tensor<1x4x6x6xf32>) {
  %0 = "relax.conv"(%x, %w) {strides = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x3x3xf32>
  // expected-remark @below {{relax.conv is not on attr: attr.conv matched 0 deep: expected strides = (2, 2) (found=())}}
  %1 = "relax.conv"(%x, %w) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1 : tensor<1x4x3x3xf32>, tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @attr_set(
// CHECK:         call @"attr-set_conv_0"(
// CHECK:         "relax.conv"
func.func @attr_set(%x: tensor<1x4x8x8xf32>, %w: tensor<4x2x3x3xf32>, %v: tensor<4x4x3x3xf32>) -> (tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>) {
  %0 = "relax.conv"(%x, %w) {groups = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32>
  // expected-remark @below {{expected groups to be one of ['2', '4'] (found=1)}}
  %1 = "relax.conv"(%x, %v) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1 : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @attr_predicate(
// CHECK:         call @"attr-predicate_conv_0"(
// CHECK:         "relax.conv"
func.func @attr_predicate(%x: tensor<1x4x8x8xf32>, %w: tensor<4x1x3x3xf32>, %v: tensor<4x2x3x3xf32>) -> (tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>) {
  %0 = "relax.conv"(%x, %w) {groups = 4 : i64} : (tensor<1x4x8x8xf32>, tensor<4x1x3x3xf32>) -> tensor<1x4x6x6xf32>
  // expected-remark @below {{no 4 (n=2)}}
  %1 = "relax.conv"(%x, %v) {groups = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1 : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @dtype(
// CHECK:         call @dtype_add_0(
// CHECK:         "relax.add"
func.func @dtype(%x: tensor<4xf16>, %y: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>) {
  %0 = "relax.add"(%x, %x) : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xf16>
  // expected-remark @below {{dtype.add matched 1 deep: expected element type f16 (found=f32)}}
  %1 = "relax.add"(%y, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf16>, tensor<4xf32>
}

// CHECK-LABEL: func.func @shape(
// CHECK:         call @shape_exp_0(
// CHECK:         call @shape_exp_1(
// CHECK:         "relax.exp"
func.func @shape(%x: tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>, %y: tensor<?x?x4xf32, #relax.dims<["m", "n", 4]>>, %z: tensor<2x?x4xf32, #relax.dims<[2, "m", 4]>>) -> (tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>, tensor<?x?x4xf32, #relax.dims<["m", "n", 4]>>, tensor<2x?x4xf32, #relax.dims<[2, "m", 4]>>) {
  %0 = "relax.exp"(%x) : (tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>) -> tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>
  %1 = "relax.exp"(%y) : (tensor<?x?x4xf32, #relax.dims<["m", "n", 4]>>) -> tensor<?x?x4xf32, #relax.dims<["m", "n", 4]>>
  // expected-remark @below {{expected the shape [?, n, 4]: dim 1 is m, not n (found=[2, m, 4])}}
  %2 = "relax.exp"(%z) : (tensor<2x?x4xf32, #relax.dims<[2, "m", 4]>>) -> tensor<2x?x4xf32, #relax.dims<[2, "m", 4]>>
  return %0, %1, %2 : tensor<2x?x4xf32, #relax.dims<[2, "n", 4]>>, tensor<?x?x4xf32, #relax.dims<["m", "n", 4]>>, tensor<2x?x4xf32, #relax.dims<[2, "m", 4]>>
}

// CHECK-LABEL: func.func @rank(
// CHECK:         call @rank_exp_0(
// CHECK:         "relax.exp"
func.func @rank(%x: tensor<2x4xf32>, %y: tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  // expected-remark @below {{expected rank 2 (found=1)}}
  %1 = "relax.exp"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<2x4xf32>, tensor<4xf32>
}

// A product commutes: the constant may be on either side.
// CHECK-LABEL: func.func @const(
// CHECK:         call @const_mul_0(
// CHECK:         call @const_mul_1(
// CHECK:         "relax.multiply"
func.func @const(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %c = "relax.constant"() {value = dense<3.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.multiply"(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = "relax.multiply"(%c, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  // expected-remark @below {{const.mul matched 1 deep: expected a constant, found an input}}
  %2 = "relax.multiply"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @const_value(
// CHECK:         call @"const-value_mul_0"(
// CHECK:         "relax.multiply"
func.func @const_value(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %two = "relax.constant"() {value = dense<2.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %c = "relax.constant"() {value = dense<[2.0, 1.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.multiply"(%x, %two) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  // expected-remark @below {{the constant is not 2.0 everywhere}}
  %1 = "relax.multiply"(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @var(
// CHECK:         %[[E:.*]] = call @var_exp_0(%arg0)
// CHECK:         "relax.exp"(%[[E]])
func.func @var(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{expected an argument, found relax.exp}}
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @var_name(
// CHECK:         call @"var-name_exp_0"(%arg1)
// CHECK:         "relax.exp"(%arg0)
func.func @var_name(%x: tensor<4xf32> {relax.name = "mask"}, %y: tensor<4xf32> {relax.name = "image"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{expected the argument 'image', found 'mask'}}
  %1 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @operand_name(
// CHECK:         call @"operand-name_conv_0"(
// CHECK:         "relax.conv"
func.func @operand_name(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>) -> (tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>) {
  %b = "relax.constant"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.conv"(%x, %w, %b) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  // expected-remark @below {{relax.conv has no operand 'bias' here}}
  %1 = "relax.conv"(%x, %w) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1 : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @operand_absent(
// CHECK:         call @"operand-absent_conv_0"(
// CHECK:         call @"operand-absent_conv_1"(
// CHECK:         "relax.conv"
func.func @operand_absent(%x: tensor<1x4x8x8xf32>, %v: tensor<4xf32>) -> (tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>) {
  %w = "relax.constant"() {value = dense<2.0> : tensor<4x4x3x3xf32>} : () -> tensor<4x4x3x3xf32>
  %b = "relax.constant"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.conv"(%x, %w, %b) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  %1 = "relax.conv"(%x, %w) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  // expected-remark @below {{operand-absent.conv matched 1 deep: expected a constant, found an input}}
  %2 = "relax.conv"(%x, %w, %v) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1, %2 : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>
}

// One result of several; the other one is returned by the composite as well.
// CHECK-LABEL: func.func @result(
// CHECK:         %[[R:.*]]:2 = call @result_relu_0(%arg0) : (tensor<4x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
// CHECK:         %[[S:.*]] = "relax.relu"(%[[R]]#0)
// CHECK:         return %[[R]]#1, %[[S]]
func.func @result(%x: tensor<4x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %0:2 = "relax.split"(%x) {axis = 0 : i64, sizes = [2, 2], resultSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
  %1 = "relax.relu"(%0#1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  // expected-remark @below {{expected result 1 of relax.split, found result 0}}
  %2 = "relax.relu"(%0#0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: func.func @where(
// CHECK:         call @where_conv_0(
// CHECK:         "relax.conv"
func.func @where(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>, %y: tensor<1x3x8x8xf32>, %v: tensor<4x3x3x3xf32>) -> (tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>) {
  %0 = "relax.conv"(%x, %w) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x6x6xf32>
  // expected-remark @below {{where.conv matched 0 deep: too few channels}}
  %1 = "relax.conv"(%y, %v) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1 : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>
}

// Calls of run-time functions are operators with a name; one that may have effects is left alone.
// CHECK-LABEL: func.func @packed(
// CHECK-NEXT:    call @packed_fast_0(%arg0)
// CHECK-NEXT:    "relax.call_dps_packed"
// CHECK-NEXT:    "relax.call_packed"
func.func @packed(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.call_dps_packed"(%x) {function = "fast_exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{packed.fast matched 0 deep: expected function = fast_exp (found=slow_exp)}}
  %1 = "relax.call_dps_packed"(%x) {function = "slow_exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{packed.effects matched 1 deep: relax.call_packed has effects}}
  %2 = "relax.call_packed"(%x) {function = "draw", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
