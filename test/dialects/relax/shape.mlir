// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Operators that give the elements another shape or order.

// CHECK-LABEL: func.func @reshape_static(
func.func @reshape_static(%x: tensor<2x6xf32>) -> tensor<3x4xf32> {
  // CHECK: "relax.reshape"(%{{.*}}) {shape = [3, 4]} :
  %0 = "relax.reshape"(%x) {shape = [3, 4]} : (tensor<2x6xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @reshape_symbolic(
func.func @reshape_symbolic(%x: tensor<?x?x768xf32, #relax.dims<["b", "s", 768]>>) -> tensor<?x?x12x64xf32, #relax.dims<["b", "s", 12, 64]>> {
  // CHECK: "relax.reshape"(%{{.*}}) {shape = ["b", "s", 12, 64]} :
  %0 = "relax.reshape"(%x) {shape = ["b", "s", 12, 64]} : (tensor<?x?x768xf32, #relax.dims<["b", "s", 768]>>) -> tensor<?x?x12x64xf32, #relax.dims<["b", "s", 12, 64]>>
  return %0 : tensor<?x?x12x64xf32, #relax.dims<["b", "s", 12, 64]>>
}

// CHECK-LABEL: func.func @reshape_merges_symbols(
func.func @reshape_merges_symbols(%x: tensor<?x?x768xf32, #relax.dims<["b", "s", 768]>>) -> tensor<?x768xf32, #relax.dims<["b*s", 768]>> {
  // CHECK: "relax.reshape"(%{{.*}}) {shape = ["b*s", 768]} :
  %0 = "relax.reshape"(%x) {shape = ["b*s", 768]} : (tensor<?x?x768xf32, #relax.dims<["b", "s", 768]>>) -> tensor<?x768xf32, #relax.dims<["b*s", 768]>>
  return %0 : tensor<?x768xf32, #relax.dims<["b*s", 768]>>
}

// CHECK-LABEL: func.func @reshape_unproven(
func.func @reshape_unproven(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?x2xf32, #relax.dims<["m", 2]>> {
  // CHECK: "relax.reshape"(%{{.*}}) {shape = ["m", 2]} :
  %0 = "relax.reshape"(%x) {shape = ["m", 2]} : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?x2xf32, #relax.dims<["m", 2]>>
  return %0 : tensor<?x2xf32, #relax.dims<["m", 2]>>
}

// CHECK-LABEL: func.func @reshape_unknown(
func.func @reshape_unknown(%x: tensor<?x4xf32, #relax.dims<["?", 4]>>) -> tensor<?x2xf32, #relax.dims<["n", 2]>> {
  // CHECK: "relax.reshape"(%{{.*}}) {shape = ["n", 2]} :
  %0 = "relax.reshape"(%x) {shape = ["n", 2]} : (tensor<?x4xf32, #relax.dims<["?", 4]>>) -> tensor<?x2xf32, #relax.dims<["n", 2]>>
  return %0 : tensor<?x2xf32, #relax.dims<["n", 2]>>
}

// CHECK-LABEL: func.func @permute_heads(
func.func @permute_heads(%x: tensor<?x?x12x64xf32, #relax.dims<["b", "s", 12, 64]>>) -> tensor<?x12x?x64xf32, #relax.dims<["b", 12, "s", 64]>> {
  // CHECK: "relax.permute"(%{{.*}}) {axes = array<i64: 0, 2, 1, -1>} :
  %0 = "relax.permute"(%x) {axes = array<i64: 0, 2, 1, -1>} : (tensor<?x?x12x64xf32, #relax.dims<["b", "s", 12, 64]>>) -> tensor<?x12x?x64xf32, #relax.dims<["b", 12, "s", 64]>>
  return %0 : tensor<?x12x?x64xf32, #relax.dims<["b", 12, "s", 64]>>
}

// CHECK-LABEL: func.func @expand_dims_of_one(
func.func @expand_dims_of_one(%x: tensor<3x1xf32>) -> tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>> {
  // CHECK: "relax.expand"(%{{.*}}) {shape = ["b", 3, "n"]} :
  %0 = "relax.expand"(%x) {shape = ["b", 3, "n"]} : (tensor<3x1xf32>) -> tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>
  return %0 : tensor<?x3x?xf32, #relax.dims<["b", 3, "n"]>>
}

// CHECK-LABEL: func.func @expand_dims_ends(
func.func @expand_dims_ends(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<1x?x3x1xf32, #relax.dims<[1, "b", 3, 1]>> {
  // CHECK: "relax.expand_dims"(%{{.*}}) {axes = array<i64: 0, -1>} :
  %0 = "relax.expand_dims"(%x) {axes = array<i64: 0, -1>} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<1x?x3x1xf32, #relax.dims<[1, "b", 3, 1]>>
  return %0 : tensor<1x?x3x1xf32, #relax.dims<[1, "b", 3, 1]>>
}

// CHECK-LABEL: func.func @squeeze_ends(
func.func @squeeze_ends(%x: tensor<1x?x1xf32, #relax.dims<[1, "b", 1]>>) -> tensor<?xf32, #relax.dims<["b"]>> {
  // CHECK: "relax.squeeze"(%{{.*}}) {axes = array<i64: -1, 0>} :
  %0 = "relax.squeeze"(%x) {axes = array<i64: -1, 0>} : (tensor<1x?x1xf32, #relax.dims<[1, "b", 1]>>) -> tensor<?xf32, #relax.dims<["b"]>>
  return %0 : tensor<?xf32, #relax.dims<["b"]>>
}

// CHECK-LABEL: func.func @squeeze_symbolic(
func.func @squeeze_symbolic(%x: tensor<?x3xf32, #relax.dims<["n", 3]>>) -> tensor<3xf32> {
  // CHECK: "relax.squeeze"(%{{.*}}) {axes = array<i64: 0>} :
  %0 = "relax.squeeze"(%x) {axes = array<i64: 0>} : (tensor<?x3xf32, #relax.dims<["n", 3]>>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @tile_rows(
func.func @tile_rows(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["2*b", 3]>> {
  // CHECK: "relax.tile"(%{{.*}}) {repeats = array<i64: 2, 1>} :
  %0 = "relax.tile"(%x) {repeats = array<i64: 2, 1>} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["2*b", 3]>>
  return %0 : tensor<?x3xf32, #relax.dims<["2*b", 3]>>
}

// CHECK-LABEL: func.func @reverse_both(
func.func @reverse_both(%x: tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>> {
  // CHECK: "relax.reverse"(%{{.*}}) {axes = array<i64: 0, -1>} :
  %0 = "relax.reverse"(%x) {axes = array<i64: 0, -1>} : (tensor<?x3xf32, #relax.dims<["b", 3]>>) -> tensor<?x3xf32, #relax.dims<["b", 3]>>
  return %0 : tensor<?x3xf32, #relax.dims<["b", 3]>>
}

// CHECK-LABEL: func.func @depth_to_space_modes(
func.func @depth_to_space_modes(%x: tensor<?x12x?x?xf32, #relax.dims<["b", 12, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>> {
  // CHECK: "relax.depth_to_space"(%{{.*}}) {block = 2 : i64} :
  %0 = "relax.depth_to_space"(%x) {block = 2 : i64} : (tensor<?x12x?x?xf32, #relax.dims<["b", 12, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>>
  // CHECK: "relax.depth_to_space"(%{{.*}}) {block = 2 : i64, mode = "CRD"} :
  %1 = "relax.depth_to_space"(%x) {block = 2 : i64, mode = "CRD"} : (tensor<?x12x?x?xf32, #relax.dims<["b", 12, "h", "w"]>>) -> tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>>
  return %1 : tensor<?x3x?x?xf32, #relax.dims<["b", 3, "2*h", "2*w"]>>
}

// CHECK-LABEL: func.func @space_to_depth_static(
func.func @space_to_depth_static(%x: tensor<1x3x4x6xf32>) -> tensor<1x12x2x3xf32> {
  // CHECK: "relax.space_to_depth"(%{{.*}}) {block = 2 : i64} :
  %0 = "relax.space_to_depth"(%x) {block = 2 : i64} : (tensor<1x3x4x6xf32>) -> tensor<1x12x2x3xf32>
  return %0 : tensor<1x12x2x3xf32>
}

// CHECK-LABEL: func.func @shape_of_symbolic(
func.func @shape_of_symbolic(%x: tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>>) -> tensor<3xi64> {
  // CHECK: "relax.shape_of"(%{{.*}}) :
  %0 = "relax.shape_of"(%x) : (tensor<?x?x8xf32, #relax.dims<["b", "s", 8]>>) -> tensor<3xi64>
  return %0 : tensor<3xi64>
}

// CHECK-LABEL: func.func @shape_of_scalar(
func.func @shape_of_scalar(%x: tensor<f32>) -> tensor<0xi64> {
  // CHECK: "relax.shape_of"(%{{.*}}) :
  %0 = "relax.shape_of"(%x) : (tensor<f32>) -> tensor<0xi64>
  return %0 : tensor<0xi64>
}
