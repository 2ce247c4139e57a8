// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=one,two | FileCheck %s --check-prefix=BOTH
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition=targets=greedy,one,two,llvm | FileCheck %s --check-prefix=FIRST
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition='targets=one max-nodes=1' | FileCheck %s --check-prefix=SIZE
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition='targets=one max-regions=1' | FileCheck %s --check-prefix=COUNT
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition='targets=one,two min-nodes=2' | FileCheck %s --check-prefix=LEAST
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition='targets=one min-flops=50' | FileCheck %s --check-prefix=WORK
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --partition='targets=one functions=second' | FileCheck %s --check-prefix=ONE

// BOTH-LABEL: func.func @main(
// BOTH-NEXT:    call @one_region_0(
// BOTH-NEXT:    call @two_region_0(
// BOTH-NEXT:    call @one_region_1(
// BOTH-NEXT:    return
// BOTH-LABEL: func.func @second(
// BOTH-NEXT:    call @one_region_2(

// The first target takes what its patterns match, the others what is left.
// FIRST-LABEL: func.func @main(
// FIRST-NEXT:    call @one_region_0(
// FIRST-NEXT:    call @greedy_region_0(
// FIRST-NEXT:    return
// FIRST-LABEL: func.func @second(
// FIRST-NEXT:    call @one_region_1(
// FIRST:       func.func private @greedy_tanh_relu_0(
// FIRST-NEXT:    "relax.tanh"
// FIRST-NEXT:    "relax.relu"

// SIZE-LABEL: func.func @main(
// SIZE-NEXT:    call @one_region_0(
// SIZE-NEXT:    call @one_region_1(
// SIZE-NEXT:    "relax.tanh"
// SIZE-NEXT:    call @one_region_2(

// The region of the most work is kept.
// COUNT-LABEL: func.func @main(
// COUNT-NEXT:    call @one_region_0(
// COUNT-NEXT:    "relax.tanh"
// COUNT-NEXT:    "relax.relu"
// COUNT-LABEL: func.func @second(
// COUNT-NEXT:    "relax.relu"
// COUNT-NOT:   func.func private @one_relu_1

// LEAST-LABEL: func.func @main(
// LEAST-NEXT:    call @one_region_0(
// LEAST-NEXT:    "relax.tanh"
// LEAST-NEXT:    "relax.relu"

// WORK-LABEL: func.func @main(
// WORK-NEXT:    call @one_region_0(
// WORK-NEXT:    "relax.tanh"
// WORK-NEXT:    "relax.relu"

// ONE-LABEL: func.func @main(
// ONE-NOT:     call
// ONE:         return
// ONE-LABEL: func.func @second(
// ONE-NEXT:    call @one_region_0(
func.func @main(%x: tensor<32xf32>) -> tensor<32xf32> {
  %0 = "relax.relu"(%x) : (tensor<32xf32>) -> tensor<32xf32>
  %1 = "relax.add"(%0, %x) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  %2 = "relax.tanh"(%1) : (tensor<32xf32>) -> tensor<32xf32>
  %3 = "relax.relu"(%2) : (tensor<32xf32>) -> tensor<32xf32>
  return %3 : tensor<32xf32>
}
func.func @second(%x: tensor<32xf32>) -> tensor<32xf32> {
  %0 = "relax.relu"(%x) : (tensor<32xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}
