// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Calls to the level below and to the outside.

func.func private @kernel(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>) -> tensor<2x4xf32> attributes {tir.prim_func}

module @npu attributes {relax.external = "npu"} {
  func.func private @part(%x: tensor<?x4xf32, #relax.dims<["n", 4]>>, %y: tensor<4xi32>) -> (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<i1>)
}

// CHECK-LABEL: func.func @call_tir(
func.func @call_tir(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) {
  // CHECK: "relax.call_tir"(%{{.*}}, %{{.*}}) {callee = @kernel, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
  %0 = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// CHECK-LABEL: func.func @call_dps_packed(
func.func @call_dps_packed(%x0: tensor<2x4xf32>, %x1: tensor<4xi8>, %x2: tensor<2x4xf32>) {
  // CHECK: "relax.call_dps_packed"(%{{.*}}, %{{.*}}, %{{.*}}) {function = "vendor.gemm", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 1, 0, 0>} :
  %0:3 = "relax.call_dps_packed"(%x0, %x1, %x2) {function = "vendor.gemm", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 1, 0, 0>} : (tensor<2x4xf32>, tensor<4xi8>, tensor<2x4xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<i64>)
  return
}

// CHECK-LABEL: func.func @call_packed(
func.func @call_packed(%x0: tensor<?x4xf32, #relax.dims<["n", 4]>>) {
  // CHECK: "relax.call_packed"(%{{.*}}) {function = "nms", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} :
  %0 = "relax.call_packed"(%x0) {function = "nms", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?xi64>
  return
}

// CHECK-LABEL: func.func @call_packed_without_result(
func.func @call_packed_without_result(%x0: tensor<?x4xf32, #relax.dims<["n", 4]>>) {
  // CHECK: "relax.call_packed"(%{{.*}}) {function = "log", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} :
  "relax.call_packed"(%x0) {function = "log", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0, 0, 0>} : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> ()
  return
}

// CHECK-LABEL: func.func @call_external(
func.func @call_external(%x0: tensor<?x4xf32, #relax.dims<["n", 4]>>, %x1: tensor<4xi32>) {
  // CHECK: "relax.call_external"(%{{.*}}, %{{.*}}) {callee = @npu::@part, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0>} :
  %0:2 = "relax.call_external"(%x0, %x1) {callee = @npu::@part, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<4xi32>) -> (tensor<?x4xf32, #relax.dims<["n", 4]>>, tensor<i1>)
  return
}

// CHECK-LABEL: func.func @view_part(
func.func @view_part(%x0: tensor<3x?xf32, #relax.dims<[3, "n"]>>) {
  // CHECK: "relax.view_part"(%{{.*}}) {offset = ["2*n"], shape = [1, "n"]} :
  %0 = "relax.view_part"(%x0) {offset = ["2*n"], shape = [1, "n"]} : (tensor<3x?xf32, #relax.dims<[3, "n"]>>) -> tensor<1x?xf32, #relax.dims<[1, "n"]>>
  return
}
