// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --rewrite=rules=subtract,exp-log,pair | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --rewrite='rules=forever limit=7' 2>&1 | FileCheck %s --check-prefix=BOUND

// Each replacement may make room for others: until nothing matches.
// CHECK-LABEL: func.func @nested(
// CHECK-NEXT:    %[[A:.*]] = "relax.subtract"(%arg0, %arg1)
// CHECK-NEXT:    %[[B:.*]] = "relax.subtract"(%[[A]], %arg0)
// CHECK-NEXT:    return %[[B]]
func.func @nested(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.negative"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.add"(%0, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.log"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "relax.exp"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "relax.negative"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = "relax.add"(%4, %5) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %6 : tensor<4xf32>
}

// A replacement that declines leaves everything as it is; an inner node that is used elsewhere stays.
// CHECK-LABEL: func.func @declined(
// CHECK-NEXT:    %[[L:.*]] = "relax.log"(%arg0)
// CHECK-NEXT:    %[[E:.*]] = "relax.exp"(%[[L]])
// CHECK-NEXT:    %[[N:.*]] = "relax.negative"(%arg0)
// CHECK-NEXT:    %[[S:.*]] = "relax.subtract"(%[[E]], %arg0)
// CHECK-NEXT:    return %[[L]], %[[S]], %[[N]]
func.func @declined(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.log"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.negative"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "relax.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %3, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Two outputs are replaced at once; their readers move behind what takes their place.
// CHECK-LABEL: func.func @outputs(
// CHECK-NEXT:    %[[E:.*]] = "relax.exp"(%arg0)
// CHECK-NEXT:    %[[N:.*]] = "relax.negative"(%[[E]])
// CHECK-NEXT:    %[[L:.*]] = "relax.log"(%[[E]])
// CHECK-NEXT:    return %[[L]], %[[N]]
func.func @outputs(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.log"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// A rule that matches its own result stops at the bound, and says so.
// BOUND: warning: rewriting by 'forever' stopped after 7 replacements: they still match
