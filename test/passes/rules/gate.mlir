// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --legalize 2>&1 | FileCheck %s

// One error for all that is left: each operator, its node in the model, each rule that was tried and its reason.

// CHECK:      gate.mlir:15:8: "head/Strange": error: pass 'legalize' failed: 4 operator(s) cannot be legalized for target 'llvm':
// CHECK-NEXT:   test.declined, "head/Strange" at {{.*}}gate.mlir:15:8
// CHECK-NEXT:     first [llvm]: the operand must be a scalar (rank=1)
// CHECK-NEXT:     second [default]: it never applies
// CHECK-NEXT:   test.declined, {{[^"]*}}gate.mlir:16:8
// CHECK-NEXT:     first [llvm]: the operand must be a scalar (rank=2)
// CHECK-NEXT:     second [default]: it never applies
// CHECK-NEXT:   test.orphan, {{.*}}gate.mlir:17:8
// CHECK-NEXT:     no rule is registered for it on llvm → default
func.func @main(%x: tensor<4xf32>, %y: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "test.declined"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("head/Strange"("gate.mlir":15:8))
  %1 = "test.declined"(%y) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "test.orphan"(%x) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:   test.endless, {{.*}}gate.mlir:20:8
// CHECK-NEXT:     its rules make operators that need rules in turn, without end
  %3 = "test.endless"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>
}
