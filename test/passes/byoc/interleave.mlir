// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(fuse-by-pattern{target=fuser},simplify,legalize,outline-external,legalize,verify-calls)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(partition{targets=fuser},outline-external,run-on-external{target=fuser pipeline="simplify,legalize"},verify-calls)' | FileCheck %s --check-prefix=ONLY
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(partition{targets=fuser},outline-external,run-on-external{target=fuser pipeline=legalize},inline-external,legalize,verify-calls)' | FileCheck %s --check-prefix=KEPT
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(partition{targets=fuser},outline-external,inline-external)' | FileCheck %s --check-prefix=UNDO
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/targets_for_tests.py --split-input-file --pass-pipeline='builtin.module(partition{targets=fuser},inline-external,partition{targets=fuser},outline-external,partition{targets=one},outline-external,verify-calls)' | FileCheck %s --check-prefix=TWICE

// What was given to a target is left alone by the passes over the rest, before it is outlined and after.

// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[X:.*]] = "relax.call_external"(%arg0) {callee = @fuser::@fuser_0,
// CHECK-NEXT:    %[[Y:.*]] = "relax.call_tir"(%[[X]]) {callee = @relu,
// CHECK-NEXT:    return %[[Y]]
// CHECK:       module @fuser attributes {relax.external = "fuser"} {
// CHECK:         "relax.conv"
// CHECK-NOT:   "relax.call_tir"

// A pipeline on the external module leaves the rest alone.

// ONLY-LABEL: func.func @main(
// ONLY-NEXT:    "relax.call_external"
// ONLY-NEXT:    "relax.relu"
// ONLY-NEXT:    return
// ONLY:       module @fuser
// ONLY:         "relax.call_tir"({{.*}}) {callee = @conv,
// ONLY:         func.func private @conv({{.*}} attributes {tir.prim_func}

// What a target legalized itself comes back as its prim functions.

// KEPT-LABEL: func.func @main(
// KEPT:         %[[X:.*]] = "relax.call_tir"(%arg0, %{{.*}}) {callee = @conv,
// KEPT:         "relax.call_tir"(%[[X]]) {callee = @relu,
// KEPT-NOT:   module @fuser
// KEPT-DAG:   func.func private @conv(
// KEPT-DAG:   func.func private @relu(

// Undone, it is what it was.

// UNDO-LABEL: func.func @main(
// UNDO-NEXT:    %[[W:.*]] = "relax.constant"() {param = "w"}
// UNDO-NEXT:    %[[C:.*]] = "relax.conv"(%arg0, %[[W]])
// UNDO-NEXT:    %[[R:.*]] = "relax.relu"(%[[C]])
// UNDO-NEXT:    return %[[R]]
// UNDO-NEXT:  }
// UNDO-NOT:   module @
// UNDO-NOT:   func.func private

// The passes run several times; a second target takes what the first one left.

// TWICE-LABEL: func.func @main(
// TWICE-NEXT:    %[[X:.*]] = "relax.call_external"(%arg0) {callee = @fuser::@fuser_0,
// TWICE-NEXT:    %[[Y:.*]] = "relax.call_external"(%[[X]]) {callee = @one::@one_0,
// TWICE-NEXT:    return %[[Y]]
func.func @main(%x: tensor<1x3x8x8xf32>) -> tensor<1x4x6x6xf32> {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x3x3x3xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  %1 = "relax.relu"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %1 : tensor<1x4x6x6xf32>
}

// -----

// Composites in control flow are found, and are called from there.

// CHECK-LABEL: func.func @branches(
// CHECK:         scf.if
// CHECK:           "relax.call_external"({{.*}}) {callee = @fuser::@fuser_0,
// CHECK:         else
// CHECK:           "relax.call_external"({{.*}}) {callee = @fuser::@fuser_1,
// UNDO-LABEL: func.func @branches(
// UNDO:         scf.if
// UNDO:           "relax.conv"
// UNDO:         else
// UNDO:           "relax.conv"
func.func @branches(%x: tensor<1x3x8x8xf32>, %w: i1) -> tensor<1x4x6x6xf32> {
  %k = "relax.constant"() {param = "w"} : () -> tensor<4x3x3x3xf32>
  %r = scf.if %w -> tensor<1x4x6x6xf32> {
    %0 = "relax.conv"(%x, %k) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
    scf.yield %0 : tensor<1x4x6x6xf32>
  } else {
    %y = "relax.exp"(%x) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32>
    %0 = "relax.conv"(%y, %k) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
    scf.yield %0 : tensor<1x4x6x6xf32>
  }
  return %r : tensor<1x4x6x6xf32>
}
