// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Control flow is upstream's, on tensors with symbolic dims too.

// CHECK-LABEL: func.func @if(
func.func @if(%condition: i1, %x: tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>> {
  // CHECK: scf.if %{{.*}} -> (tensor<?x4xf32, #relax.dims<["n", 4]>>) {
  %0 = scf.if %condition -> (tensor<?x4xf32, #relax.dims<["n", 4]>>) {
    // CHECK-NEXT: "relax.exp"
    %1 = "relax.exp"(%x) : (tensor<?x4xf32, #relax.dims<["n", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
    scf.yield %1 : tensor<?x4xf32, #relax.dims<["n", 4]>>
  } else {
    scf.yield %x : tensor<?x4xf32, #relax.dims<["n", 4]>>
  }
  return %0 : tensor<?x4xf32, #relax.dims<["n", 4]>>
}

// CHECK-LABEL: func.func @while(
func.func @while(%start: tensor<i64>, %limit: tensor<i64>) -> tensor<i64> {
  // CHECK: scf.while
  %0 = scf.while (%i = %start) : (tensor<i64>) -> tensor<i64> {
    // CHECK: "relax.less"
    %1 = "relax.less"(%i, %limit) : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %2 = tensor.extract %1[] : tensor<i1>
    scf.condition(%2) %i : tensor<i64>
  } do {
  ^bb0(%i: tensor<i64>):
    // CHECK: "relax.add"
    %1 = "relax.add"(%i, %i) : (tensor<i64>, tensor<i64>) -> tensor<i64>
    scf.yield %1 : tensor<i64>
  }
  return %0 : tensor<i64>
}

// CHECK-LABEL: func.func @for(
func.func @for(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %five = arith.constant 5 : index
  // CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}) -> (tensor<8xf32>)
  %0 = scf.for %i = %zero to %five step %one iter_args(%y = %x) -> (tensor<8xf32>) {
    // CHECK-NEXT: "relax.tanh"
    %1 = "relax.tanh"(%y) : (tensor<8xf32>) -> tensor<8xf32>
    scf.yield %1 : tensor<8xf32>
  }
  return %0 : tensor<8xf32>
}
