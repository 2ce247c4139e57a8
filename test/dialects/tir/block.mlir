// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Structured blocks.

// CHECK-DAG: [[M0:#map[0-9]*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: [[M1:#map[0-9]*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: [[M2:#map[0-9]*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: [[M3:#map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: [[M4:#map[0-9]*]] = affine_map<(d0) -> (d0 - 1)>
// CHECK-DAG: [[M5:#map[0-9]*]] = affine_map<(d0) -> (d0)>
// CHECK-DAG: [[M6:#map[0-9]*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: [[M7:#map[0-9]*]] = affine_map<() -> ()>
// CHECK-DAG: [[M8:#map[0-9]*]] = affine_map<(d0, d1) -> (d0 * 3 + d1)>

// A reduction: the accumulator is the last block argument.
// CHECK-LABEL: func.func @matmul(
func.func @matmul(%x: tensor<128x256xf32>, %w: tensor<256x64xf32>) {
  // CHECK: "tir.block"(%{{.*}}, %{{.*}}) ({
  %r = "tir.block"(%x, %w) ({
  ^bb0(%i: index, %j: index, %k: index, %a: f32, %b: f32, %acc: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %acc, %0 : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial", "spatial", "reduce"], domain = [128, 64, 256], init = [0.000000e+00 : f32], maps = {{\[}}[[M0]], [[M1]], [[M2]]{{\]}}, name = "matmul", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = ["spatial", "spatial", "reduce"], domain = [128, 64, 256], init = [0.000000e+00 : f32], maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], name = "matmul", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<128x256xf32>, tensor<256x64xf32>) -> tensor<128x64xf32>
  return
}

// CHECK-LABEL: func.func @elementwise(
func.func @elementwise(%x: tensor<8x4xf32>) {
  // CHECK: "tir.block"(%{{.*}}) ({
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = {{\[}}[[M3]], [[M3]]{{\]}}, name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// The map leaves the tensor; 0 is read there.
// CHECK-LABEL: func.func @padding(
func.func @padding(%x: tensor<8xf32>) {
  // CHECK: "tir.block"(%{{.*}}) ({
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    "tir.yield"(%a) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial"], domain = [10], init = [unit], maps = {{\[}}[[M4]], [[M5]]{{\]}}, name = "pad", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, outside = [0.000000e+00 : f32], resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = ["spatial"], domain = [10], init = [unit], maps = [affine_map<(d0) -> (d0 - 1)>, affine_map<(d0) -> (d0)>], name = "pad", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, outside = [0.000000e+00 : f32], resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<10xf32>
  return
}

// The whole table goes to the body.
// CHECK-LABEL: func.func @gather(
func.func @gather(%x: tensor<100x4xf32>, %at: tensor<8xi64>) {
  // CHECK: "tir.block"(%{{.*}}, %{{.*}}) ({
  %r = "tir.block"(%x, %at) ({
  ^bb0(%i: index, %j: index, %table: tensor<100x4xf32>, %row: i64):
    %0 = arith.index_cast %row : i64 to index
    %1 = tensor.extract %table[%0, %j] : tensor<100x4xf32>
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = {{\[}}unit, [[M6]], [[M3]]{{\]}}, name = "gather", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], maps = [unit, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], name = "gather", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<100x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  return
}

// Two outputs that are reduced together.
// CHECK-LABEL: func.func @argmax(
func.func @argmax(%x: tensor<8x4xf32>) {
  // CHECK: "tir.block"(%{{.*}}) ({
  %r:2 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32, %best: f32, %where: i64):
    %0 = arith.cmpf ogt, %a, %best : f32
    %1 = arith.select %0, %a, %best : f32
    %2 = arith.index_cast %j : index to i64
    %3 = arith.select %0, %2, %where : i64
    "tir.yield"(%1, %3) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (f32, i64) -> ()
  // CHECK: "tir.yield"(%{{.*}}, %{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [0xFF800000 : f32, 0], maps = {{\[}}[[M3]], [[M6]], [[M6]]{{\]}}, name = "argmax", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0>}
  }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [0xFF800000 : f32, 0], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], name = "argmax", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<8x4xf32>) -> (tensor<8xf32>, tensor<8xi64>)
  return
}

// The buffer form: outputs are the last operands.
// CHECK-LABEL: func.func @buffers(
func.func @buffers(%x: memref<8x4xf32>, %y: memref<8xf32>) {
  // CHECK: "tir.block"(%{{.*}}, %{{.*}}) ({
  "tir.block"(%x, %y) ({
  ^bb0(%i: index, %j: index, %a: f32, %acc: f32):
    %0 = arith.addf %acc, %a : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [0.000000e+00 : f32], maps = {{\[}}[[M3]], [[M6]]{{\]}}, name = "rows", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>}
  }) {axes = ["spatial", "reduce"], domain = [8, 4], init = [0.000000e+00 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "rows", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (memref<8x4xf32>, memref<8xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @no_axis(
func.func @no_axis() {
  // CHECK: "tir.block"() ({
  %r = "tir.block"() ({
  ^bb0:
    %0 = arith.constant 1 : i32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (i32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = [], domain = [], init = [unit], maps = {{\[}}[[M7]]{{\]}}, name = "one", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = [], domain = [], init = [unit], maps = [affine_map<() -> ()>], name = "one", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : () -> tensor<i32>
  return
}

// CHECK-LABEL: func.func @symbolic(
func.func @symbolic(%x: tensor<?xf32, #relax.dims<["n"]>>) {
  // CHECK: "tir.block"(%{{.*}}) ({
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %a: f32):
    %0 = "tir.exp"(%a) : (f32) -> f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial"], domain = ["n"], init = [unit], maps = {{\[}}[[M5]], [[M5]]{{\]}}, name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = ["spatial"], domain = ["n"], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "exp", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return
}

// The last window ends with the last element.
// CHECK-LABEL: func.func @windows(
func.func @windows(%x: tensor<19xf32>) {
  // CHECK: "tir.block"(%{{.*}}) ({
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %k: index, %a: f32, %acc: f32):
    %0 = arith.maximumf %acc, %a : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  // CHECK: "tir.yield"(%{{.*}})
  // CHECK-NEXT: }) {axes = ["spatial", "reduce"], domain = [6, 4], init = [0xFF800000 : f32], maps = {{\[}}[[M8]], [[M6]]{{\]}}, name = "windows", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>}
  }) {axes = ["spatial", "reduce"], domain = [6, 4], init = [0xFF800000 : f32], maps = [affine_map<(d0, d1) -> (d0 * 3 + d1)>, affine_map<(d0, d1) -> (d0)>], name = "windows", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<19xf32>) -> tensor<6xf32>
  return
}
