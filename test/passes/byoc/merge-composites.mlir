// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(fuse-by-pattern{target=one},fuse-by-pattern{target=two},merge-composites,verify-calls)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(fuse-by-pattern{target=one bind-constants=false annotate},verify-calls)' | FileCheck %s --check-prefix=ALONE

// Target `one` takes relu and add, target `two` tanh and multiply.

// Branches that join: all three are one region. The function need not be called main, and each is looked at.

// CHECK-LABEL: func.func @branches(
// CHECK-NEXT:    %[[R:.*]] = call @one_region_0(%arg0, %arg1)
// CHECK-NEXT:    return %[[R]]
// CHECK-LABEL: func.func @other(
// CHECK-NEXT:    %[[R:.*]] = call @one_region_1(%arg0)
// CHECK-NEXT:    return %[[R]]
// CHECK:       func.func private @one_region_0(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32> attributes {relax.external = "one"} {
// CHECK-NEXT:    %[[A:.*]] = call @one_relu_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @one_relu_1(%arg1)
// CHECK-NEXT:    %[[C:.*]] = call @one_add_0(%[[A]], %[[B]])
// CHECK-NEXT:    return %[[C]]
// ALONE-LABEL: func.func @branches(
// ALONE-NEXT:    %[[A:.*]] = call @one_region_0(%arg0)
// ALONE-NEXT:    %[[B:.*]] = call @one_region_1(%arg1)
// ALONE-NEXT:    %[[C:.*]] = call @one_region_2(%[[A]], %[[B]])
// ALONE-NEXT:    return %[[C]]
// ALONE:       func.func private @one_region_0(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {relax.external = "one"} {
// ALONE-NEXT:    %[[R:.*]] = call @one_relu_0(%arg0)
// ALONE-NEXT:    return %[[R]]
func.func @branches(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A diamond of one target.

// CHECK-LABEL: func.func @diamond(
// CHECK-NEXT:    %[[R:.*]] = call @one_region_0(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:    return %[[R]]
func.func @diamond(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// Two targets in turn: a region ends where the other begins.

// CHECK-LABEL: func.func @in_turn(
// CHECK-NEXT:    %[[A:.*]] = call @one_region_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @two_region_0(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = call @one_region_1(%[[B]])
// CHECK-NEXT:    return %[[C]]
func.func @in_turn(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.multiply"(%2, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.relu"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// The sum cannot join the first relu: another way from there to it leads through tanh, which would be before and after
// the region at once.

// CHECK-LABEL: func.func @cycle(
// CHECK-NEXT:    %[[A:.*]] = call @one_region_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @two_region_0(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = call @one_region_1(%[[A]], %[[B]])
// CHECK-NEXT:    return %[[C]]
func.func @cycle(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// A longer way back, through operators of no target and through a region of the other one.

// CHECK-LABEL: func.func @long_cycle(
// CHECK-NEXT:    %[[A:.*]] = call @one_region_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = "relax.exp"(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = call @two_region_0(%[[B]])
// CHECK-NEXT:    %[[D:.*]] = "relax.exp"(%[[C]])
// CHECK-NEXT:    %[[E:.*]] = call @one_region_1(%[[A]], %[[D]])
// CHECK-NEXT:    return %[[E]]
func.func @long_cycle(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.exp"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.add"(%0, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// A region returns all that is read outside; readers that stood between its parts move behind it.

// CHECK-LABEL: func.func @outputs(
// CHECK-NEXT:    %[[R:.*]]:2 = call @one_region_0(%arg0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
// CHECK-NEXT:    %[[E:.*]] = "relax.exp"(%[[R]]#0)
// CHECK-NEXT:    return %[[E]], %[[R]]#1
// CHECK:       func.func private @one_region_0(
// CHECK-NEXT:    %[[A:.*]] = call @one_relu_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = call @one_relu_1(%[[A]])
// CHECK-NEXT:    return %[[A]], %[[B]]
func.func @outputs(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Parts of an operator with several results are values like others (TVM's tuples and projections).

// CHECK-LABEL: func.func @several_results(
// CHECK-NEXT:    %[[S:.*]]:2 = "relax.split"(%arg0)
// CHECK-NEXT:    %[[R:.*]] = call @one_region_0(%[[S]]#1, %[[S]]#0)
// CHECK-NEXT:    return %[[R]]
func.func @several_results(%x: tensor<4xf32>) -> tensor<2xf32> {
  %0:2 = "relax.split"(%x) {axis = 0 : i64, sizes = [2, 2], resultSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  %1 = "relax.relu"(%0#1) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = "relax.add"(%0#0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}

// -----

// Constants are bound in the composite that reads them, or else handed in.

// CHECK-LABEL: func.func @constants(
// CHECK-NEXT:    %[[R:.*]] = call @one_region_0(%arg0)
// CHECK-NEXT:    return %[[R]]
// CHECK:       func.func private @one_add_0(%arg0: tensor<4xf32>)
// CHECK-NEXT:    %[[C:.*]] = "relax.constant"() {value = dense<1.000000e+00>
// CHECK-NEXT:    "relax.add"(%arg0, %[[C]])
// ALONE-LABEL: func.func @constants(
// ALONE-NEXT:    %[[C:.*]] = "relax.constant"()
// ALONE-NEXT:    call @one_region_0(%arg0, %[[C]])
func.func @constants(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = "relax.constant"() {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.add"(%x, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.add"(%0, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A composite that is called twice is in both regions.

// CHECK-LABEL: func.func @reused(
// CHECK-NEXT:    %[[A:.*]] = call @one_region_0(%arg0)
// CHECK-NEXT:    %[[B:.*]] = "relax.exp"(%[[A]])
// CHECK-NEXT:    %[[C:.*]] = call @one_region_1(%[[B]])
// CHECK-NEXT:    return %[[C]]
// CHECK:       func.func private @one_region_0(
// CHECK-NEXT:    call @shared(
// CHECK:       func.func private @one_region_1(
// CHECK-NEXT:    call @shared(
func.func @reused(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @shared(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = func.call @shared(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
func.func private @shared(%x: tensor<4xf32>) -> tensor<4xf32> attributes {relax.composite = "one.relu", relax.target = "one"} {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
