// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// Gathers read by themselves, at indices that are kept inside; scatters are loops.

// CHECK-LABEL: func.func @test_gather
// CHECK:       relax.call_tir{{.*}}callee = @gather
// CHECK:       func.func private @gather
// CHECK:       arith.index_cast
// CHECK:       arith.cmpi slt
// CHECK:       arith.addi
// CHECK:       arith.select
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       tensor.extract
// CHECK:       domain = [5, 8]{{.*}}name = "gather"
func.func @test_gather(%arg0: tensor<100x8xf32>, %arg1: tensor<5xi64>) -> tensor<5x8xf32> {
  %0 = "relax.gather"(%arg0, %arg1) : (tensor<100x8xf32>, tensor<5xi64>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_gather_elements
// CHECK:       relax.call_tir{{.*}}callee = @gather_elements
// CHECK:       func.func private @gather_elements
// CHECK:       arith.index_cast
// CHECK:       arith.cmpi slt
// CHECK:       arith.addi
// CHECK:       arith.select
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       tensor.extract
// CHECK:       domain = [2, 8]{{.*}}name = "gather_elements"
func.func @test_gather_elements(%arg0: tensor<4x8xf32>, %arg1: tensor<2x8xi32>) -> tensor<2x8xf32> {
  %0 = "relax.gather_elements"(%arg0, %arg1) : (tensor<4x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, 0)>
// CHECK:       affine_map<(d0, d1) -> (d0, 1)>
// CHECK-LABEL: func.func @test_gather_nd
// CHECK:       relax.call_tir{{.*}}callee = @gather_nd
// CHECK:       func.func private @gather_nd
// CHECK:       arith.index_cast
// CHECK:       arith.cmpi slt
// CHECK:       arith.addi
// CHECK:       arith.select
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       arith.index_cast
// CHECK:       arith.cmpi slt
// CHECK:       arith.addi
// CHECK:       arith.select
// CHECK:       arith.maxsi
// CHECK:       arith.minsi
// CHECK:       tensor.extract
// CHECK:       domain = [5, 3]{{.*}}name = "gather_nd"
func.func @test_gather_nd(%arg0: tensor<4x8x3xf32>, %arg1: tensor<5x2xi64>) -> tensor<5x3xf32> {
  %0 = "relax.gather_nd"(%arg0, %arg1) : (tensor<4x8x3xf32>, tensor<5x2xi64>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (1)>
// CHECK:       affine_map<(d0, d1) -> (0)>
// CHECK-LABEL: func.func @test_one_hot
// CHECK:       relax.call_tir{{.*}}callee = @one_hot
// CHECK:       func.func private @one_hot
// CHECK:       arith.index_cast
// CHECK:       arith.cmpi slt
// CHECK:       arith.addi
// CHECK:       arith.select
// CHECK:       arith.cmpi eq
// CHECK:       arith.select
// CHECK:       domain = [4, 3]{{.*}}name = "one_hot"
func.func @test_one_hot(%arg0: tensor<4xi64>, %arg1: tensor<2xf32>) -> tensor<4x3xf32> {
  %0 = "relax.one_hot"(%arg0, %arg1) {depth = 3 : i64} : (tensor<4xi64>, tensor<2xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

// CHECK-LABEL: func.func @test_scatter_elements
// CHECK:       relax.call_tir{{.*}}callee = @scatter_elements
// CHECK:       func.func private @scatter_elements({{.*}}memref<4x8xf32>, {{.*}}memref<2x8xi64>, {{.*}}memref<2x8xf32>, {{.*}}memref<4x8xf32>)
// CHECK:       memref.copy
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       scf.if
// CHECK:       arith.addf
func.func @test_scatter_elements(%arg0: tensor<4x8xf32>, %arg1: tensor<2x8xi64>, %arg2: tensor<2x8xf32>) -> tensor<4x8xf32> {
  %0 = "relax.scatter_elements"(%arg0, %arg1, %arg2) {reduction = "add"} : (tensor<4x8xf32>, tensor<2x8xi64>, tensor<2x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @test_scatter_nd
// CHECK:       relax.call_tir{{.*}}callee = @scatter_nd
// CHECK:       func.func private @scatter_nd({{.*}}memref<4x8xf32>, {{.*}}memref<3x1xi64>, {{.*}}memref<3x8xf32>, {{.*}}memref<4x8xf32>)
// CHECK:       memref.copy
// CHECK:       scf.for
// CHECK:       scf.if
// CHECK:       scf.for
func.func @test_scatter_nd(%arg0: tensor<4x8xf32>, %arg1: tensor<3x1xi64>, %arg2: tensor<3x8xf32>) -> tensor<4x8xf32> {
  %0 = "relax.scatter_nd"(%arg0, %arg1, %arg2) : (tensor<4x8xf32>, tensor<3x1xi64>, tensor<3x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// An index that is known is a position in the map of the block: one from the end, or beyond it, as well.
// CHECK:       affine_map<(d0) -> (3, d0)>
// CHECK-LABEL: func.func @gather_known(
// CHECK:         "relax.call_tir"(%arg0) {callee = @gather
// CHECK:       func.func private @gather{{.*}}(%arg0: tensor<4x8xf32>) -> tensor<8xf32>
// CHECK-NOT:     tensor.extract
// CHECK:         domain = [8]
func.func @gather_known(%x: tensor<4x8xf32>) -> tensor<8xf32> {
  %i = "relax.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
  %0 = "relax.gather"(%x, %i) {axis = 0 : i64} : (tensor<4x8xf32>, tensor<i64>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
