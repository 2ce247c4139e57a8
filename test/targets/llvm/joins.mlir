// RUN: mirlo-opt %s --legalize=target=llvm --split-input-file | FileCheck %s

// Many operands are copied run by run, as vectors: of the 4 * 32 elements of each, eight vectors, four at a time.
// CHECK-LABEL: func.func private @concat_0(
// CHECK:         scf.for
// CHECK-COUNT-4:     vector.load {{.*}} : memref<281474976710656xf32>, vector<16xf32>
// CHECK-COUNT-4:     vector.store {{.*}} : memref<281474976710656xf32>, vector<16xf32>
// CHECK-NOT:     memref.load
func.func @concat(%x: tensor<?x4x32xf32, #relax.dims<["n", 4, 32]>>) -> tensor<?x20x32xf32, #relax.dims<["n", 20, 32]>> {
  %0 = "relax.concat"(%x, %x, %x, %x, %x) {axis = 1 : i64, operandSegmentSizes = array<i32: 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x4x32xf32, #relax.dims<["n", 4, 32]>>, tensor<?x4x32xf32, #relax.dims<["n", 4, 32]>>, tensor<?x4x32xf32, #relax.dims<["n", 4, 32]>>, tensor<?x4x32xf32, #relax.dims<["n", 4, 32]>>, tensor<?x4x32xf32, #relax.dims<["n", 4, 32]>>) -> tensor<?x20x32xf32, #relax.dims<["n", 20, 32]>>
  return %0 : tensor<?x20x32xf32, #relax.dims<["n", 20, 32]>>
}

// -----

// A few are joined in a block, which fuses with its users.
// CHECK-LABEL: func.func private @stack_0(
// CHECK:         "tir.block"
func.func @stack(%x: tensor<3x5xf32>) -> tensor<3x2x5xf32> {
  %0 = "relax.stack"(%x, %x) {axis = 1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x2x5xf32>
  return %0 : tensor<3x2x5xf32>
}
