// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --verify-diagnostics --pass-pipeline='builtin.module(fuse-by-pattern{target=alternatives functions=alternatives explain},fuse-by-pattern{target=optional functions=optional explain},fuse-by-pattern{target=both functions=both explain},fuse-by-pattern{target=not functions=not explain},fuse-by-pattern{target=chain functions=chain explain},fuse-by-pattern{target=commutative functions=commutative explain},fuse-by-pattern{target=ordered functions=ordered explain},fuse-by-pattern{target=unordered functions=unordered explain},fuse-by-pattern{target=variadic functions=variadic explain},fuse-by-pattern{target=same-value functions=same_value explain},fuse-by-pattern{target=diamond functions=diamond explain},fuse-by-pattern{target=outputs functions=outputs explain},fuse-by-pattern{target=fork functions=fork explain},fuse-by-pattern{target=used-by functions=used_by explain},fuse-by-pattern{target=only-used-by functions=only_used_by explain},fuse-by-pattern{target=inner-output functions=inner_output explain},fuse-by-pattern{target=leak functions=leak explain},fuse-by-pattern{target=cross functions=convex explain},fuse-by-pattern{target=cross functions=cycle explain},fuse-by-pattern{target=check functions=check explain},fuse-by-pattern{target=helpers functions=helpers explain},fuse-by-pattern{target=first-wins functions=first_wins explain},fuse-by-pattern{target=short-first functions=short_first explain})' | FileCheck %s

// How the values of a pattern hang together: of two places the first fits, the second does not and says why.

// What was expected of all alternatives is one sentence.
// CHECK-LABEL: func.func @alternatives(
// CHECK-NEXT:    call @alternatives_act_0(%arg0)
// CHECK-NEXT:    call @alternatives_act_1(%arg0)
// CHECK:         "relax.relu"
func.func @alternatives(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.relu"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.log"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{alternatives.act matched 1 deep: expected relax.add or relax.exp, found relax.log}}
  %5 = "relax.relu"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %3, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// The longest match is taken; optional parts that are missing do not matter.
// CHECK-LABEL: func.func @optional(
// CHECK-NEXT:    %[[A:.*]] = call @optional_exp_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @optional_exp_1(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = call @optional_exp_2(%[[B]])
// CHECK-NEXT:    return %[[C]]
func.func @optional(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.exp"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.tanh"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "relax.exp"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  return %5 : tensor<4xf32>
}

// CHECK-LABEL: func.func @both(
// CHECK:         call @both_exp_0
// CHECK:         "relax.exp"
func.func @both(%x: tensor<4x4xf32>, %y: tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  // expected-remark @below {{expected rank 2 (found=1)}}
  %1 = "relax.exp"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @not(
// CHECK:         %[[N:.*]] = call @not_relu_0(%arg0)
// CHECK:         %[[E:.*]] = "relax.exp"(%[[N]])
// CHECK:         "relax.relu"(%[[E]])
func.func @not(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{not.relu matched 1 deep: expected anything but relax.exp(anything)}}
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{not.relu matched 1 deep: expected anything but relax.exp(anything)}}
  %2 = "relax.relu"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// One to three steps after an exp; a chain of four is cut behind the third.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:    %[[A:.*]] = call @chain_chain_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = "relax.tanh"(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = call @chain_chain_1(%[[B]])
// CHECK-NEXT:    %[[D:.*]] = "relax.exp"(%[[C]])
// CHECK-NEXT:    return %[[D]]
func.func @chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.relu"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{chain.chain matched 3 deep}}
  %4 = "relax.tanh"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "relax.exp"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.tanh"(%5) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{chain.chain has it only before relax.relu or relax.tanh, and none that is free follows}}
  %7 = "relax.exp"(%6) : (tensor<4xf32>) -> tensor<4xf32>
  return %7 : tensor<4xf32>
}

// CHECK-LABEL: func.func @commutative(
// CHECK-NEXT:    call @commutative_add_0(%arg0)
// CHECK-NEXT:    call @commutative_add_1(%arg0)
// CHECK-NEXT:    return
func.func @commutative(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "relax.add"(%4, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2, %5 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @ordered(
// CHECK-NEXT:    %[[E:.*]] = "relax.exp"
// CHECK-NEXT:    %[[R:.*]] = "relax.relu"
// CHECK-NEXT:    "relax.add"(%[[R]], %[[E]])
func.func @ordered(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-remark @below {{ordered.add has it only before relax.add, and none that is free follows}}
  %3 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{expected relax.exp, found relax.relu}}
  %4 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{ordered.add matched 1 deep: expected relax.exp, found relax.relu}}
  %5 = "relax.add"(%4, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %5 : tensor<4xf32>
}

// CHECK-LABEL: func.func @unordered(
// CHECK-NEXT:    call @unordered_concat_0(%arg0) : (tensor<4xf32>) -> tensor<12xf32>
// CHECK-NEXT:    return
func.func @unordered(%x: tensor<4xf32>) -> tensor<12xf32> {
  %0 = "relax.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.concat"(%0, %1, %2) {axis = 0 : i64, operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<12xf32>
  return %3 : tensor<12xf32>
}

// CHECK-LABEL: func.func @variadic(
// CHECK-NEXT:    call @variadic_concat_0(%arg0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<12xf32>
// CHECK:         "relax.concat"
func.func @variadic(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<12xf32>, tensor<8xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.concat"(%0, %x, %y) {axis = 0 : i64, operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<12xf32>
  // expected-remark @below {{variadic.concat matched 1 deep: expected relax.exp, found an input}}
  %2 = "relax.concat"(%x, %y) {axis = 0 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  return %1, %2 : tensor<12xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @same_value(
// CHECK-NEXT:    call @"same-value_square_0"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:    "relax.multiply"(%arg0, %arg1)
func.func @same_value(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.multiply"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{same-value.square matched 1 deep: it must be the value that 'x' is elsewhere in the pattern}}
  %1 = "relax.multiply"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// Both branches must come from one exp. The second pair comes from two.
// CHECK-LABEL: func.func @diamond(
// CHECK-NEXT:    call @diamond_diamond_0(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:    "relax.exp"
// CHECK-NEXT:    "relax.exp"
// CHECK-NEXT:    "relax.relu"
// CHECK-NEXT:    "relax.tanh"
// CHECK-NEXT:    "relax.add"
func.func @diamond(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.add"(%2, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{diamond.diamond matched}}
  %4 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{it must be the value that 'top' is elsewhere in the pattern}}
  %5 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{diamond.diamond matched}}
  %6 = "relax.relu"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{diamond.diamond matched}}
  %7 = "relax.tanh"(%5) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{diamond.diamond matched 4 deep: it must be the value that 'top' is elsewhere}}
  %8 = "relax.add"(%6, %7) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3, %8 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @outputs(
// CHECK-NEXT:    %[[P:.*]]:2 = call @outputs_pair_0(%arg0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
// CHECK-NEXT:    %[[E:.*]] = "relax.exp"(%[[P]]#0)
// CHECK-NEXT:    "relax.relu"(%arg1)
// CHECK-NEXT:    return %[[E]], %[[P]]#1
func.func @outputs(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{outputs.pair matched 1 deep: nothing beside the result of relax.relu can be relax.tanh(anything)}}
  %3 = "relax.relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @fork(
// CHECK-NEXT:    %[[P:.*]]:2 = call @fork_fork_0(%arg0)
// CHECK-NEXT:    return %[[P]]#0, %[[P]]#1
func.func @fork(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// Operand 1 of the sum must be the exp, which may be used elsewhere only where the pattern says so.
// CHECK-LABEL: func.func @used_by(
// CHECK-NEXT:    call @"used-by_pair_0"(%arg0)
// CHECK-NEXT:    %[[E:.*]] = "relax.exp"
// CHECK-NEXT:    "relax.add"(%[[E]], %arg0)
func.func @used_by(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.add"(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{used-by.pair has it only before relax.add, and none that is free follows}}
  %2 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{used-by.pair matched 1 deep: expected relax.exp, found an input}}
  %3 = "relax.add"(%2, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1, %3 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @only_used_by(
// CHECK-NEXT:    call @"only-used-by_pair_0"(%arg0)
// CHECK-NEXT:    "relax.exp"
// CHECK-NEXT:    "relax.relu"
// CHECK-NEXT:    "relax.tanh"
func.func @only_used_by(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{only-used-by.pair matched 3 deep}}
  %3 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{only-used-by.pair matched 3 deep}}
  %4 = "relax.relu"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{only-used-by.pair matched 3 deep: the result of relax.relu is also used by func.return}}
  %5 = "relax.tanh"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  return %2, %5, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @inner_output(
// CHECK-NEXT:    %[[P:.*]]:2 = call @"inner-output_pair_0"(%arg0)
// CHECK-NEXT:    return %[[P]]#0, %[[P]]#1
func.func @inner_output(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// Without a mark, what is inside must not be used outside.
// CHECK-LABEL: func.func @leak(
// CHECK-NEXT:    "relax.exp"
// CHECK-NEXT:    "relax.relu"
func.func @leak(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-remark @below {{leak.long matched 2 deep: the result of relax.exp is also used outside the match, by func.return}}
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{leak.long matched 2 deep: the result of relax.exp is also used outside the match, by func.return}}
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// A way out of the match and back into it: it is not convex.
// CHECK-LABEL: func.func @convex(
// CHECK-NOT:     call
// CHECK:         return
func.func @convex(%x: tensor<4xf32>, %p: tensor<4xf32>) -> tensor<4xf32> {
  // expected-remark @below {{it is not convex: relax.exp depends on a part of it, and a part depends on that}}
  %0 = "relax.add"(%x, %p) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{it is not convex}}
  %2 = "relax.multiply"(%x, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// Two matches, each of them convex, that together would be a cycle: the second is not taken.
// CHECK-LABEL: func.func @cycle(
// CHECK:         %[[B:.*]] = "relax.add"(%arg1, %arg0)
// CHECK:         %[[F:.*]] = "relax.exp"(%[[B]])
// CHECK:         %[[A:.*]]:2 = call @cross_pair_0(%arg0, %arg1, %[[F]])
// CHECK:         %[[G:.*]] = "relax.tanh"(%[[A]]#0)
// CHECK:         %[[C:.*]] = "relax.multiply"(%arg1, %[[G]])
// CHECK:         return %[[A]]#1, %[[C]]
func.func @cycle(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a1 = "relax.add"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{cross.pair matched 2 deep: it is not convex: relax.tanh depends on a part of it}}
  %b1 = "relax.add"(%y, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %f = "relax.exp"(%b1) : (tensor<4xf32>) -> tensor<4xf32>
  %g = "relax.tanh"(%a1) : (tensor<4xf32>) -> tensor<4xf32>
  %a2 = "relax.multiply"(%x, %f) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{cross.pair}}
  %b2 = "relax.multiply"(%y, %g) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %a2, %b2 : tensor<4xf32>, tensor<4xf32>
}

// A check of whole matches: both operands have one shape.
// CHECK-LABEL: func.func @check(
// CHECK-NEXT:    call @check_add_0
// CHECK-NEXT:    "relax.add"
func.func @check(%x: tensor<4xf32>, %y: tensor<1xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{check.add matched 1 deep: 'b' has another shape (a=[4], b=[1])}}
  %1 = "relax.add"(%x, %y) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @helpers(
// CHECK-NEXT:    %[[A:.*]] = call @helpers_conv_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @helpers_conv_1(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = "relax.reshape"(%[[B]])
// CHECK-NEXT:    %[[D:.*]] = call @helpers_matmul_0(%[[C]])
// CHECK-NEXT:    return %[[D]]
func.func @helpers(%x: tensor<1x4x8x8xf32>) -> tensor<64x2xf32> {
  %w = "relax.constant"() {value = dense<2.0> : tensor<4x4x1x1xf32>} : () -> tensor<4x4x1x1xf32>
  %b = "relax.constant"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %c = "relax.constant"() {value = dense<2.0> : tensor<4x1x1xf32>} : () -> tensor<4x1x1xf32>
  %m = "relax.constant"() {value = dense<2.0> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
  %v = "relax.constant"() {value = dense<2.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.conv"(%x, %w, %b) : (tensor<1x4x8x8xf32>, tensor<4x4x1x1xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  %1 = "relax.clip"(%0) {min = 0.0 : f64, max = 6.0 : f64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.conv"(%1, %w) : (tensor<1x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<1x4x8x8xf32>
  %3 = "relax.add"(%2, %c) : (tensor<1x4x8x8xf32>, tensor<4x1x1xf32>) -> tensor<1x4x8x8xf32>
  %4 = "relax.reshape"(%3) {shape = [64, 4]} : (tensor<1x4x8x8xf32>) -> tensor<64x4xf32>
  %5 = "relax.matmul"(%4, %m) : (tensor<64x4xf32>, tensor<4x2xf32>) -> tensor<64x2xf32>
  %6 = "relax.add"(%v, %5) : (tensor<2xf32>, tensor<64x2xf32>) -> tensor<64x2xf32>
  %7 = "relax.gelu"(%6) : (tensor<64x2xf32>) -> tensor<64x2xf32>
  return %7 : tensor<64x2xf32>
}

// Patterns that come first take nodes away from those that come later, in the order of the table.
// CHECK-LABEL: func.func @first_wins(
// CHECK-NEXT:    %[[A:.*]] = call @"first-wins_long_0"(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @"first-wins_short_0"(%[[A]])
// CHECK-NEXT:    return %[[B]]
func.func @first_wins(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// CHECK-LABEL: func.func @short_first(
// CHECK-NEXT:    %[[A:.*]] = call @"short-first_short_0"(%arg0)
// CHECK-NEXT:    "relax.relu"(%[[A]])
func.func @short_first(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @below {{short-first.long matched 1 deep: relax.exp is taken by short-first.short}}
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// The bodies of the chains from above.
// CHECK:       func.func private @chain_chain_0
// CHECK-NEXT:    "relax.exp"
// CHECK-NEXT:    "relax.relu"
// CHECK-NEXT:    "relax.relu"
// CHECK-NEXT:    "relax.tanh"
// CHECK-NEXT:    return
// CHECK:       func.func private @chain_chain_1
// CHECK-NEXT:    "relax.exp"
// CHECK-NEXT:    "relax.tanh"
// CHECK-NEXT:    return
