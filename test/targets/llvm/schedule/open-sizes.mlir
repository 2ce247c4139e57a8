// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule="machine=avx512" --split-input-file | FileCheck %s

// Loops of a length that is known at run time only: whole vectors, then at most one of each smaller size. LLVM unrolls none.

// CHECK-LABEL: func.func private @exp(
// CHECK-SAME:    index) attributes {{.*}}rule = "elementwise"
// CHECK-SAME:    tir.symbols = ["n"]
// CHECK:         scf.for
// CHECK:           vector.load {{.*}} vector<64xf32>
// CHECK:         } {llvm.loop_annotation =
// CHECK-NOT:     scf.for
// CHECK:         scf.if
// CHECK:           vector.load {{.*}} vector<32xf32>
// CHECK:         scf.if
// CHECK:           vector.load {{.*}} vector<16xf32>
// CHECK:         scf.if
// CHECK:           vector.load {{.*}} vector<8xf32>
// CHECK:         scf.if
// CHECK:         scf.if
// CHECK:         scf.if
// CHECK:           memref.load
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>> {
  %0 = "relax.exp"(%x) : (tensor<?xf32, #relax.dims<["n"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}

// -----

// Rows that are known at run time only: whole tiles, and at most one of each smaller size for the rest, early enough.

// CHECK-LABEL: func.func private @matmul(
// CHECK-SAME:    rule = "contraction"
// CHECK-SAME:    tile = array<i64: 14, 32>
// CHECK:         scf.for {{.*}} step %c14
// CHECK:           arith.minsi
// CHECK-COUNT-28:  vector.fma
// CHECK-NOT:     scf.for {{.*}} step %c9
// CHECK:         scf.if
// CHECK:           arith.minsi
// CHECK:           scf.for
// CHECK-COUNT-18:  vector.fma
// CHECK:         scf.if
// CHECK:           scf.for
// CHECK-COUNT-14:  vector.fma
// CHECK:         scf.if
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
