// RUN: mirlo-opt %s --verify-diagnostics --pass-pipeline='builtin.module(partition{targets=onednn,llvm explain=true})' | FileCheck %s

// What follows a convolution is done with it; the residual is an operand of the composite.
// CHECK-LABEL: func.func @residual
// CHECK: call @onednn_region_0
func.func @residual(%x: tensor<1x8x9x9xf32>, %w: tensor<8x8x1x1xf32>, %r: tensor<1x8x9x9xf32>) -> tensor<1x8x9x9xf32> {
  %0 = "relax.conv"(%x, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x8x9x9xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x9x9xf32>
  %1 = "relax.add"(%r, %0) : (tensor<1x8x9x9xf32>, tensor<1x8x9x9xf32>) -> tensor<1x8x9x9xf32>
  %2 = "relax.relu"(%1) : (tensor<1x8x9x9xf32>) -> tensor<1x8x9x9xf32>
  return %2 : tensor<1x8x9x9xf32>
}

// A result that is broadcast by what follows it is stored first.
func.func @broadcast(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %r: tensor<3x4x6xf32>) -> tensor<3x4x6xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %1 = "relax.add"(%0, %r) : (tensor<4x6xf32>, tensor<3x4x6xf32>) -> tensor<3x4x6xf32>
  return %1 : tensor<3x4x6xf32>
}

func.func @declined(%x: tensor<1x8x9x9xf32>, %d: tensor<4x8xf64>, %v: tensor<8xf32>, %s: tensor<?x8xf32, #relax.dims<["floordiv(batch, 2)", 8]>>, %w: tensor<8x8xf32>) -> (tensor<1x8x9x9xf32>, tensor<4x8xf64>, tensor<8xf32>, tensor<?x8xf32, #relax.dims<["floordiv(batch, 2)", 8]>>) {
  // expected-remark@+1 {{relax.lrn is not on onednn: onednn.lrn matched 1 deep: a window of an even number of channels has no middle (size=4)}}
  %0 = "relax.lrn"(%x) {size = 4 : i64} : (tensor<1x8x9x9xf32>) -> tensor<1x8x9x9xf32>
  // expected-remark@+1 {{relax.softmax is not on onednn: onednn.softmax matched 1 deep: an input of relax.softmax is not f32 (found=f64)}}
  %1 = "relax.softmax"(%d) : (tensor<4x8xf64>) -> tensor<4x8xf64>
  // expected-remark@+1 {{relax.relu is not on onednn: onednn.eltwise matched 1 deep: no operator that is worth the library is near: compiled kernels do it better}}
  %2 = "relax.relu"(%v) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-remark@+1 {{relax.matmul is not on onednn: onednn.matmul matched 1 deep: a dim is neither a number nor a sum of products of symbols (found=floordiv(batch, 2))}}
  %3 = "relax.matmul"(%s, %w) : (tensor<?x8xf32, #relax.dims<["floordiv(batch, 2)", 8]>>, tensor<8x8xf32>) -> tensor<?x8xf32, #relax.dims<["floordiv(batch, 2)", 8]>>
  return %0, %1, %2, %3 : tensor<1x8x9x9xf32>, tensor<4x8xf64>, tensor<8xf32>, tensor<?x8xf32, #relax.dims<["floordiv(batch, 2)", 8]>>
}

// CHECK: func.func private @onednn_conv_0
// CHECK-SAME: relax.composite = "onednn.conv"
// CHECK: relax.conv
// CHECK-NEXT: relax.add
// CHECK-NEXT: relax.relu

// CHECK: func.func private @onednn_matmul_0
// CHECK: relax.matmul
// CHECK-NEXT: return

// CHECK: func.func private @onednn_binary_0
// CHECK-NEXT: relax.add
