// RUN: mirlo-opt %s --verify-calls | FileCheck %s

// Calls that fit, and facts that are known, stay as they are.

// CHECK-COUNT-4: "relax.call_tir"
// CHECK: "relax.call_external"
func.func private @tensors(%x: tensor<8x4xf32>, %mask: tensor<8xi8>, %count: tensor<i64>) -> tensor<8xi8> attributes {tir.prim_func} {
  return %mask : tensor<8xi8>
}

func.func private @buffers(%x: memref<8x4xf32>, %mask: memref<8xi8>, %y: memref<8xi32>) attributes {tir.prim_func} {
  return
}

func.func private @with_workspace(%x: memref<8xi8>, %y: memref<8xi8>, %scratch: memref<128xi8>) attributes {tir.prim_func, tir.workspace = 128 : i64} {
  return
}

func.func private @any_size(%x: memref<?x4xf32>, %y: memref<?x4xf32>) attributes {tir.prim_func}

module @npu attributes {relax.external = "npu"} {
  func.func private @part(%x: tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<8xui8>
}

func.func @facts(%x: tensor<8xf32> {relax.name = "pixels"}, %y: tensor<8xf32> {relax.name = "mask"}) -> (tensor<8xf32> {relax.name = "pixels"}) {
  return %x : tensor<8xf32>
}

func.func @planned(%x: memref<8xf32> {relax.name = "x", relax.type = tensor<8xf32>}, %y: memref<8xi8> {relax.name = "y", relax.type = tensor<8xi1>}, %w: memref<8xf32> {relax.param = "w"}, %a: memref<64xi8> {relax.arena}) attributes {relax.inputs = 1 : i64, relax.outputs = 1 : i64} {
  return
}

func.func private @group(%x: tensor<8xf32>) -> tensor<8xf32> attributes {relax.primitive} {
  return %x : tensor<8xf32>
}

func.func @tensor_form(%x0: tensor<8x4xf32>, %x1: tensor<8xi1>, %x2: tensor<ui64>) {
  %r = "relax.call_tir"(%x0, %x1, %x2) {callee = @tensors, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>, tensor<8xi1>, tensor<ui64>) -> tensor<8xui8>
  return
}

func.func @buffer_form(%x0: tensor<8x4xf32>, %x1: tensor<8xi1>) {
  %r = "relax.call_tir"(%x0, %x1) {callee = @buffers, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>, tensor<8xi1>) -> tensor<8xui32>
  return
}

func.func @scratch_memory_is_not_passed(%x0: tensor<8xi8>) {
  %r = "relax.call_tir"(%x0) {callee = @with_workspace, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xi8>) -> tensor<8xi1>
  return
}

func.func @symbolic_size(%x0: tensor<?x4xf32, #relax.dims<["n", 4]>>) {
  %r = "relax.call_tir"(%x0) {callee = @any_size, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  return
}

func.func @external(%x0: tensor<?x4xf32, #relax.dims<["n", 4]>>) {
  %r = "relax.call_external"(%x0) {callee = @npu::@part, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<8xui8>
  return
}
