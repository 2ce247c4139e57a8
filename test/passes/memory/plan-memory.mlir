// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule --plan-memory --split-input-file | FileCheck %s

// Inputs, outputs, parameters and the arena are arguments. The last kernel writes right into the output; intermediates that
// are not alive at one time share the arena: 64 bytes each, two of them.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME:    %[[X:.*]]: memref<4x4xf32> {relax.name = "x", relax.type = tensor<4x4xf32>}
// CHECK-SAME:    %[[Y:.*]]: memref<4x4xf32> {relax.name = "y", relax.type = tensor<4x4xf32>}
// CHECK-SAME:    %[[W:.*]]: memref<4x4xf32> {relax.param = "w", relax.type = tensor<4x4xf32>}
// CHECK-SAME:    %[[A:.*]]: memref<128xi8> {relax.arena}) attributes {relax.entry, relax.inputs = 1 : i64, relax.outputs = 1 : i64}
// CHECK-DAG:     %[[V0:.*]] = memref.view %[[A]][%c0
// CHECK-DAG:     call @matmul(%[[X]], %[[W]], %[[V0]])
// CHECK-DAG:     %[[V1:.*]] = memref.view %[[A]][%c64
// CHECK:         call @permute(%[[V0]], %[[V1]])
// CHECK:         %[[V2:.*]] = memref.view %[[A]][%c0
// CHECK:         call @permute(%[[V1]], %[[V2]])
// CHECK:         call @permute(%[[V2]], %[[Y]])
// CHECK-NEXT:    return
func.func @chain(%x: tensor<4x4xf32> {relax.name = "x"}) -> (tensor<4x4xf32> {relax.name = "y"}) {
  %w = "relax.constant"() {param = "w"} : () -> tensor<4x4xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "relax.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "relax.permute"(%1) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "relax.permute"(%2) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// An elementwise kernel writes over an input that ends with it: no second buffer. Another input is not overwritten, nor
// is one that is still read.
// CHECK-LABEL: func.func @in_place(
// CHECK-SAME:    memref<64xi8> {relax.arena}
// CHECK:         %[[V:.*]] = memref.view
// CHECK:         call @exp(%{{.*}}, %[[V]])
// CHECK:         %[[W:.*]] = memref.view %{{.*}}[%c0
// CHECK:         call @add(%[[V]], %{{.*}}, %[[W]])
// CHECK:         call @permute(%[[W]], %{{.*}})
func.func @in_place(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "relax.add"(%0, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "relax.permute"(%1) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// CHECK-LABEL: func.func @still_read(
// CHECK-SAME:    memref<128xi8> {relax.arena}
func.func @still_read(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "relax.negative"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "relax.matmul"(%0, %1) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// Reshapes only look at a buffer; what is looked at when it is returned is computed into the output.
// CHECK-LABEL: func.func @views(
// CHECK-SAME:    %[[X:.*]]: memref<2x8xf32> {{.*}}, %[[Y:.*]]: memref<16xf32> {{.*}}, %{{.*}}: memref<0xi8> {relax.arena}
// CHECK:         %[[O:.*]] = memref.reinterpret_cast %[[Y]] to {{.*}} : memref<16xf32> to memref<4x4xf32
// CHECK:         %[[V:.*]] = memref.reinterpret_cast %[[X]] to {{.*}} : memref<2x8xf32> to memref<4x4xf32
// CHECK:         call @exp(%[[V]], %[[O]])
func.func @views(%x: tensor<2x8xf32>) -> tensor<16xf32> {
  %0 = "relax.reshape"(%x) {shape = [4, 4]} : (tensor<2x8xf32>) -> tensor<4x4xf32>
  %1 = "relax.exp"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "relax.reshape"(%1) {shape = [16]} : (tensor<4x4xf32>) -> tensor<16xf32>
  return %2 : tensor<16xf32>
}

// -----

// What lives elsewhere is copied: an input, a constant, a tensor that is returned twice.
// CHECK-LABEL: func.func @copies(
// CHECK-SAME:    %[[X:[^:]*]]: memref<2xf32> {{.*}}, %[[A:[^:]*]]: memref<2xf32> {{.*}}, %[[B:[^:]*]]: memref<2xf32> {{.*}}, %[[C:[^:]*]]: memref<2xf32> {{.*}}, %[[D:[^:]*]]: memref<2xf32>
// CHECK:         %[[K:.*]] = memref.get_global @copies_constant
// CHECK:         call @exp(%[[X]], %[[C]])
// CHECK:         memref.copy %[[X]], %[[A]]
// CHECK:         memref.copy %[[K]], %[[B]]
// CHECK:         memref.copy %[[C]], %[[D]]
func.func @copies(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %k = "relax.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %x, %k, %0, %0 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// Scratch memory of a kernel is a part of the arena while it runs, beside its operands.
// CHECK-LABEL: func.func @workspace(
// CHECK-SAME:    memref<192xi8> {relax.arena}
// CHECK:         call @scratch(%{{.*}}, %{{.*}}, %{{.*}}) : (memref<4xf32>, memref<4xf32>, memref<128xi8>) -> ()
// CHECK:         call @scratch(%{{.*}}, %{{.*}}, %{{.*}}) : (memref<4xf32>, memref<4xf32>, memref<128xi8>) -> ()
func.func @workspace(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.call_tir"(%x) {callee = @scratch, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.call_tir"(%0) {callee = @scratch, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func private @scratch(%x: memref<4xf32>, %y: memref<4xf32>, %workspace: memref<128xi8>) attributes {tir.prim_func, tir.workspace = 128 : i64} {
  memref.copy %x, %y : memref<4xf32> to memref<4xf32>
  return
}
