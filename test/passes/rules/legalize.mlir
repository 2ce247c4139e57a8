// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --legalize | FileCheck %s --check-prefix=CHAIN
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule= strategy=any_size' | FileCheck %s --check-prefix=STRATEGY
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --legalize='skip=test.chain,relax.relu' | FileCheck %s --check-prefix=SKIP
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=declines' | FileCheck %s --check-prefix=FALLS
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=declines+of_loops' | FileCheck %s --check-prefix=LOOPS
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=of_operators' | FileCheck %s --check-prefix=OPERATORS
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=of_two_functions' | FileCheck %s --check-prefix=TWO
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=of_a_packed_function' | FileCheck %s --check-prefix=PACKED
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=of_a_c_function' | FileCheck %s --check-prefix=EXTERN
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=of_a_c_number' --lower-loops | FileCheck %s --check-prefix=NUMBER

// Rules are tried along the chain and by priority; one that declines falls through, also one given to one run.

// CHAIN-LABEL: func.func @main
// CHAIN:         "relax.call_tir"(%arg0) {callee = @chain,
// CHAIN:         "relax.call_tir"(%arg1) {callee = @chain_0,
// CHAIN:         "relax.call_tir"(%arg2) {callee = @chain_1,
// CHAIN:         "relax.call_tir"(%arg2) {callee = @relu,
// CHAIN-LABEL: func.func private @chain(
// CHAIN:         arith.constant 1.000000e+01 : f32
// CHAIN-LABEL: func.func private @chain_0(
// CHAIN:         arith.constant 2.000000e+01 : f32
// CHAIN-LABEL: func.func private @chain_1(
// CHAIN:         arith.constant 3.000000e+01 : f32

// The strategy that is asked for comes before the others.

// STRATEGY-LABEL: func.func private @chain(
// STRATEGY:         arith.constant 3.000000e+01 : f32
// STRATEGY-LABEL: func.func private @chain_0(
// STRATEGY:         arith.constant 3.000000e+01 : f32

// SKIP-COUNT-3: "test.chain"
// SKIP:         "relax.relu"

// FALLS: "relax.call_tir"(%arg2) {callee = @relu,

// LOOPS:       "relax.call_tir"(%arg2) {callee = @relu,
// LOOPS-LABEL: func.func private @relu(%arg0: memref<3xf32>, %arg1: memref<3xf32>)
// LOOPS:         %[[HELD:.*]] = memref.alloca()
// LOOPS:         memref.copy %arg0, %[[HELD]]
// LOOPS:         scf.for
// LOOPS:           scf.if
// LOOPS:             memref.store {{.*}}, %arg1
// LOOPS:           } else {
// LOOPS:             memref.store {{.*}}, %arg1

// OPERATORS:     "relax.call_tir"(%arg2) {callee = @chain_1,
// OPERATORS:     "relax.call_tir"(%arg2) {callee = @chain_1,
// OPERATORS-NOT: callee = @relu

// TWO:      %[[HALF:.*]] = "relax.call_tir"(%arg2) {callee = @relu,
// TWO-NEXT: "relax.call_tir"(%[[HALF]]) {callee = @relu_{{[0-9]+}},

// PACKED: "relax.call_dps_packed"(%arg2) {function = "test.relu",{{.*}} : (tensor<3xf32>) -> tensor<3xf32>

// EXTERN-LABEL: func.func private @relu(%arg0: memref<3xf32>, %arg1: memref<3xf32>)
// EXTERN:         %[[SIZE:.*]] = arith.constant 3 : index
// EXTERN:         "tir.call_extern"(%arg0, %arg1, %[[SIZE]]) {function = "c_relu"{{.*}}} : (memref<3xf32>, memref<3xf32>, index) -> ()

// NUMBER:       func.func private @c_scaled(f32, f64, index) -> f32
// NUMBER-LABEL: func.func private @relu(%arg0: memref<3xf32>, %arg1: memref<3xf32>)
// NUMBER:         scf.for %[[I:[a-z0-9]+]] =
// NUMBER:           %[[X:.*]] = memref.load %arg0[%[[I]]]
// NUMBER:           %[[Y:.*]] = func.call @c_scaled(%[[X]], %{{.*}}, %[[I]]) : (f32, f64, index) -> f32
// NUMBER:           memref.store %[[Y]], %arg1[%[[I]]]

func.func @main(%x: tensor<1xf32>, %y: tensor<2xf32>, %z: tensor<3xf32>) -> (tensor<1xf32>, tensor<2xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0 = "test.chain"(%x) : (tensor<1xf32>) -> tensor<1xf32>
  %1 = "test.chain"(%y) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = "test.chain"(%z) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = "relax.relu"(%z) : (tensor<3xf32>) -> tensor<3xf32>
  return %0, %1, %2, %3 : tensor<1xf32>, tensor<2xf32>, tensor<3xf32>, tensor<3xf32>
}
