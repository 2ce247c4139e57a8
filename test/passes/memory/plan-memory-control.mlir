// RUN: mirlo-opt %s --legalize --annotate-kinds --schedule --plan-memory --split-input-file | FileCheck %s

// What a branch computes is computed right where the result is wanted; what it only passes on is copied there.
// CHECK-LABEL: func.func @branch(
// CHECK-SAME:    %[[X:[^:]*]]: memref<4xf32> {{.*}}, %[[C:[^:]*]]: memref<i8> {{.*}}, %[[Y:[^:]*]]: memref<4xf32> {{.*}}, %{{.*}}: memref<0xi8> {relax.arena}
// CHECK:         %[[BYTE:.*]] = memref.load %[[C]][] : memref<i8>
// CHECK:         %[[FLAG:.*]] = arith.cmpi ne, %[[BYTE]], %{{.*}} : i8
// CHECK:         scf.if %[[FLAG]] {
// CHECK-NEXT:      func.call @exp(%[[X]], %[[Y]])
// CHECK-NEXT:    } else {
// CHECK-NEXT:      memref.copy %[[X]], %[[Y]]
// CHECK-NEXT:    }
// CHECK-NEXT:    return
func.func @branch(%x: tensor<4xf32>, %c: tensor<i1>) -> tensor<4xf32> {
  %flag = tensor.extract %c[] : tensor<i1>
  %0 = scf.if %flag -> tensor<4xf32> {
    %1 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// A loop carries its tensor in one place, here the output. The last kernel of a round writes over it: what it reads of
// the round before, it reads in step.
// CHECK-LABEL: func.func @in_place(
// CHECK-SAME:    %[[X:[^:]*]]: memref<4xf32> {{.*}}, %[[N:[^:]*]]: memref<i64> {{.*}}, %[[Y:[^:]*]]: memref<4xf32> {{.*}}, %{{.*}}: memref<0xi8> {relax.arena}
// CHECK:         %[[ROUNDS:.*]] = memref.load %[[N]][] : memref<i64>
// CHECK:         %[[END:.*]] = arith.index_cast %[[ROUNDS]]
// CHECK:         call @exp(%[[X]], %[[Y]])
// CHECK-NEXT:    scf.for %{{.*}} = %{{.*}} to %[[END]] step %{{.*}} {
// CHECK-NEXT:      func.call @add(%[[Y]], %[[X]], %[[Y]])
// CHECK-NEXT:    }
// CHECK-NEXT:    return
func.func @in_place(%x: tensor<4xf32>, %n: tensor<i64>) -> tensor<4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rounds = tensor.extract %n[] : tensor<i64>
  %end = arith.index_cast %rounds : i64 to index
  %start = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %0 = scf.for %i = %zero to %end step %one iter_args(%v = %start) -> (tensor<4xf32>) {
    %1 = "relax.add"(%v, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// A kernel that reads other elements than it writes needs a second place; its result is copied when the round ends.
// CHECK-LABEL: func.func @second_place(
// CHECK-SAME:    %[[X:[^:]*]]: memref<4x4xf32> {{.*}}, %[[Y:[^:]*]]: memref<4x4xf32> {{.*}}, %[[A:.*]]: memref<64xi8> {relax.arena}
// CHECK:         memref.copy %[[X]], %[[Y]]
// CHECK-NEXT:    scf.for
// CHECK:           %[[V:.*]] = memref.view %[[A]]
// CHECK-NEXT:      func.call @permute(%[[Y]], %[[V]])
// CHECK-NEXT:      memref.copy %[[V]], %[[Y]]
// CHECK-NEXT:    }
func.func @second_place(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %end = arith.constant 3 : index
  %0 = scf.for %i = %zero to %end step %one iter_args(%v = %x) -> (tensor<4x4xf32>) {
    %1 = "relax.permute"(%v) {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    scf.yield %1 : tensor<4x4xf32>
  }
  return %0 : tensor<4x4xf32>
}

// -----

// Tensors that change places are copied as if at once: over a third place.
// CHECK-LABEL: func.func @swap(
// CHECK-SAME:    %[[Y:[^:]*]]: memref<4xf32> {relax.name = "output_0", {{.*}}, %[[Z:[^:]*]]: memref<4xf32> {relax.name = "output_1", {{.*}}, %[[A:.*]]: memref<128xi8>
// CHECK:         scf.for
// CHECK:           %[[P:[^ ]*]] = memref.view %[[A]][
// CHECK-NEXT:      memref.copy %[[Z]], %[[P]]
// CHECK:           %[[Q:[^ ]*]] = memref.view %[[A]][
// CHECK-NEXT:      memref.copy %[[Y]], %[[Q]]
// CHECK-NEXT:      memref.copy %[[P]], %[[Y]]
// CHECK-NEXT:      memref.copy %[[Q]], %[[Z]]
// CHECK-NEXT:    }
func.func @swap(%x: tensor<4xf32>, %w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %end = arith.constant 3 : index
  %0:2 = scf.for %i = %zero to %end step %one iter_args(%u = %x, %v = %w) -> (tensor<4xf32>, tensor<4xf32>) {
    scf.yield %v, %u : tensor<4xf32>, tensor<4xf32>
  }
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// What a loop reads from outside is not overwritten by what the loop computes: it is read in each round.
// CHECK-LABEL: func.func @outside(
// CHECK-SAME:    %[[A:[^ ]*]]: memref<192xi8> {relax.arena}
// CHECK:         %[[K:.*]] = memref.view %[[A]][%[[AT:.*]]][]
// CHECK-NEXT:    call @exp(%{{.*}}, %[[K]])
// CHECK:         scf.for
// CHECK:           call @negative(%[[K]], %[[T:[^ )]*]])
// CHECK:           call @matmul(%{{.*}}, %[[T]], %{{.*}})
func.func @outside(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %end = arith.constant 3 : index
  %k = "relax.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = scf.for %i = %zero to %end step %one iter_args(%v = %x) -> (tensor<4x4xf32>) {
    %1 = "relax.negative"(%k) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = "relax.matmul"(%v, %1) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    scf.yield %2 : tensor<4x4xf32>
  }
  return %0 : tensor<4x4xf32>
}

// -----

// The counter of this loop is a tensor: loaded for the condition, counted down in its place.
// CHECK-LABEL: func.func @countdown(
// CHECK-SAME:    %[[N:[^:]*]]: memref<i64> {{.*}}, %[[Y:[^:]*]]: memref<i64> {{.*}}, %[[A:.*]]: memref<64xi8> {relax.arena}
// CHECK:         memref.copy %[[N]], %[[Y]]
// CHECK-NEXT:    scf.while : () -> () {
// CHECK:           call @greater(%[[Y]], %[[FLAG:[^ )]*]])
// CHECK-NEXT:      %[[BYTE:.*]] = memref.load %[[FLAG]][] : memref<i8>
// CHECK:           %[[GO:.*]] = arith.cmpi ne, %[[BYTE]]
// CHECK:           scf.condition(%[[GO]])
// CHECK-NEXT:    } do {
// CHECK:           call @subtract(%[[Y]], %[[Y]])
// CHECK-NEXT:      scf.yield
func.func @countdown(%n: tensor<i64>) -> tensor<i64> {
  %0 = scf.while (%v = %n) : (tensor<i64>) -> tensor<i64> {
    %zero = "relax.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %1 = "relax.greater"(%v, %zero) : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %go = tensor.extract %1[] : tensor<i1>
    scf.condition(%go) %v : tensor<i64>
  } do {
  ^bb0(%v: tensor<i64>):
    %one = "relax.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %1 = "relax.subtract"(%v, %one) : (tensor<i64>, tensor<i64>) -> tensor<i64>
    scf.yield %1 : tensor<i64>
  }
  return %0 : tensor<i64>
}

// -----

// Scalars are carried as they are; a scalar becomes a tensor by a store.
// CHECK-LABEL: func.func @scalars(
// CHECK-SAME:    %[[Y:[^:]*]]: memref<2xi64>
// CHECK:         %[[SUM:.*]] = scf.for %{{.*}} iter_args(%[[S:.*]] = %{{.*}}) -> (i64) {
// CHECK:           %[[NEXT:.*]] = arith.addi %[[S]], %{{.*}} : i64
// CHECK:           scf.yield %[[NEXT]] : i64
// CHECK:         memref.store %[[SUM]], %[[Y]][%c0
// CHECK:         memref.store %{{.*}}, %[[Y]][%c1
// CHECK:         scf.if %{{.*}} {
// CHECK-NEXT:      memref.copy
// CHECK-NEXT:    } else {
// CHECK-NEXT:      memref.copy
func.func @scalars(%c: tensor<i1>, %a: tensor<i64>, %b: tensor<i64>) -> (tensor<2xi64>, tensor<i64>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %end = arith.constant 3 : index
  %ten = arith.constant 10 : i64
  %flag = tensor.extract %c[] : tensor<i1>
  %0 = scf.for %i = %zero to %end step %one iter_args(%s = %ten) -> (i64) {
    %1 = arith.index_cast %i : index to i64
    %2 = arith.addi %s, %1 : i64
    scf.yield %2 : i64
  }
  %pair = tensor.from_elements %0, %ten : tensor<2xi64>
  %which = arith.select %flag, %a, %b : tensor<i64>
  return %pair, %which : tensor<2xi64>, tensor<i64>
}
