// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule="machine=avx512" --split-input-file | FileCheck %s

// Loops of a length that is known at run time only: whole vectors, then ever smaller ones.

// CHECK-LABEL: func.func private @exp(
// CHECK-SAME:    index) attributes {{.*}}rule = "elementwise"
// CHECK-SAME:    tir.symbols = ["n"]
// CHECK:         scf.for
// CHECK:           vector.load {{.*}} vector<16xf32>
// CHECK:         scf.for
// CHECK:           vector.load {{.*}} vector<8xf32>
// CHECK:         scf.for
// CHECK:           vector.load {{.*}} vector<4xf32>
func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>> {
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}

// -----

// Rows that are known at run time only: if they fill a tile, the last tile begins early enough; else smaller tiles.

// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME:    rule = "contraction"
// CHECK:         scf.if
// CHECK:           scf.for
// CHECK:             arith.minsi
// CHECK:             vector.fma
// CHECK:         } else {
// CHECK:           scf.for
// CHECK:             vector.fma
func.func @main(%x: tensor<?x64xf32, #relax.dims<["m", 64]>>, %w: tensor<64x32xf32>) -> tensor<?x32xf32, #relax.dims<["m", 32]>> {
  %0 = "relax.matmul"(%x, %w) : (tensor<?x64xf32, #relax.dims<["m", 64]>>, tensor<64x32xf32>) -> tensor<?x32xf32, #relax.dims<["m", 32]>>
  return %0 : tensor<?x32xf32, #relax.dims<["m", 32]>>
}

// -----

// Columns that are known at run time only: the last panel under a mask.

// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME:    rule = "contraction"
// CHECK:         vector.create_mask
// CHECK:         vector.maskedstore
func.func @main(%x: tensor<8x64xf32>, %w: tensor<64x?xf32, #relax.dims<[64, "n"]>>) -> tensor<8x?xf32, #relax.dims<[8, "n"]>> {
  %0 = "relax.matmul"(%x, %w) : (tensor<8x64xf32>, tensor<64x?xf32, #relax.dims<[64, "n"]>>) -> tensor<8x?xf32, #relax.dims<[8, "n"]>>
  return %0 : tensor<8x?xf32, #relax.dims<[8, "n"]>>
}
