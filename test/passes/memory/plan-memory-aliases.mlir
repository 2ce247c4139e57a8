// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule --plan-memory=aliases=true --split-input-file | FileCheck %s

// A cache that is read last by the call that writes it may be where the result is: then nothing is copied.
// CHECK-LABEL: func.func private @cache_write.state(
// CHECK:         %[[FROM:.*]] = memref.extract_aligned_pointer_as_index %arg0
// CHECK:         %[[TO:.*]] = memref.extract_aligned_pointer_as_index %arg3
// CHECK:         %[[DIFFERS:.*]] = arith.cmpi ne, %[[FROM]], %[[TO]]
// CHECK:         scf.if %[[DIFFERS]]
// CHECK:           memref.copy {{.*}} {tir.start}
// CHECK:       func.func @step(
// CHECK-SAME:    relax.alias = "past", relax.name = "present"
// CHECK:         call @cache_write.state(
func.func @step(%past: tensor<1x2x8x4xf32> {relax.name = "past"}, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>) -> (tensor<1x2x8x4xf32> {relax.name = "present"}) {
  %0 = "relax.cache_write"(%past, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}

// -----

// An input that is read later keeps its memory.
// CHECK-LABEL: func.func @read_later(
// CHECK-NOT:     relax.alias
// CHECK:         call @cache_write(
func.func @read_later(%past: tensor<1x2x8x4xf32>, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>) -> (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) {
  %0 = "relax.cache_write"(%past, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  %1 = "relax.exp"(%past) : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %0, %1 : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}

// -----

// So does one that is itself an output.
// CHECK-LABEL: func.func @returned(
// CHECK-NOT:     relax.alias
func.func @returned(%past: tensor<1x2x8x4xf32>, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>) -> (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) {
  %0 = "relax.cache_write"(%past, %new, %at) {shape = [1, 2, 8, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x8x4xf32>
  return %0, %past : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}

// -----

// A result with more rows does not fit where an intermediate cache is.
// CHECK-LABEL: func.func @grown(
// CHECK-NOT:     in_place
// CHECK:         call @cache_write(
func.func @grown(%x: tensor<1x2x8x4xf32>, %new: tensor<1x2x1x4xf32>, %at: tensor<1x1xi64>) -> tensor<1x2x9x4xf32> {
  %0 = "relax.exp"(%x) : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  %1 = "relax.cache_write"(%0, %new, %at) {shape = [1, 2, 9, 4]} : (tensor<1x2x8x4xf32>, tensor<1x2x1x4xf32>, tensor<1x1xi64>) -> tensor<1x2x9x4xf32>
  %2 = "relax.exp"(%1) : (tensor<1x2x9x4xf32>) -> tensor<1x2x9x4xf32>
  return %2 : tensor<1x2x9x4xf32>
}
