// RUN: mirlo-opt %s --legalize --schedule=machine=sse | FileCheck %s --check-prefix=SSE
// RUN: mirlo-opt %s --legalize --schedule=machine=avx2 | FileCheck %s

// A tile is read along the operand's memory, transposed by three rounds of shuffles, and written along the output's.

// CHECK-LABEL: func.func private @permute
// CHECK-SAME:    transposed_columns = 8 : i64, transposed_rows = 8 : i64
// CHECK:       scf.for %{{.*}} = %c0{{.*}} to %c3{{.*}} step %c1
// CHECK-COUNT-8:   vector.load %{{.*}} : memref<384xf32>, vector<8xf32>
// CHECK:           vector.shuffle %{{.*}} [0, 8, 1, 9, 4, 12, 5, 13]
// CHECK:           vector.shuffle %{{.*}} [2, 10, 3, 11, 6, 14, 7, 15]
// CHECK-COUNT-14:  vector.shuffle
// CHECK:           vector.shuffle %{{.*}} [0, 1, 2, 3, 8, 9, 10, 11]
// CHECK:           vector.shuffle %{{.*}} [4, 5, 6, 7, 12, 13, 14, 15]
// CHECK-COUNT-6:   vector.shuffle
// CHECK-COUNT-8:   vector.store %{{.*}} : memref<384xf32>, vector<8xf32>
// CHECK:       {tir.parallel}

// Where parts of vectors are not cheap, lanes are loaded one by one, from one address: such machines have no gathers.
// SSE-LABEL: func.func private @permute
// SSE-NOT:     vector.gather
// SSE-COUNT-4: memref.load
// SSE-NEXT:    vector.from_elements
func.func @turn(%x: tensor<24x16xf32>) -> tensor<16x24xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<24x16xf32>) -> tensor<16x24xf32>
  return %0 : tensor<16x24xf32>
}

// Dims that move as a whole are copied row by row.

// CHECK-LABEL: func.func private @permute_0
// CHECK-NOT:   shuffle
// CHECK:       vector.load %{{.*}} : memref<576xf32>, vector<8xf32>
// CHECK:       vector.store %{{.*}} : memref<576xf32>, vector<8xf32>
// CHECK:       return
func.func @heads(%x: tensor<9x4x16xf32>) -> tensor<4x9x16xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 1, 0, 2>} : (tensor<9x4x16xf32>) -> tensor<4x9x16xf32>
  return %0 : tensor<4x9x16xf32>
}
