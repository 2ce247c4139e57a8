// RUN: not mirlo explain %s --plugin %root/test/passes/rules/Inputs/rules_for_tests.py 2>&1 | FileCheck %s

// A model that cannot be compiled is explained as far as it came.

// CHECK:      node head/Strange
// CHECK-NEXT:   test.declined: no rule took it
// CHECK-NEXT:     declined: first [llvm]: the operand must be a scalar (rank=1)
// CHECK-NEXT:     declined: second [default]: it never applies
// CHECK:      mirlo: error[{{.*}}]: "head/Strange": pass 'legalize' failed: 1 operator(s) cannot be legalized for target 'llvm':
// CHECK-NEXT:   test.declined, "head/Strange"
// CHECK-NEXT:     first [llvm]: the operand must be a scalar (rank=1)
// CHECK-NEXT:     second [default]: it never applies

func.func @main(%x: tensor<8xf32> {relax.name = "x"}) -> (tensor<8xf32> {relax.name = "y"}) {
  %0 = "test.declined"(%x) : (tensor<8xf32>) -> tensor<8xf32> loc("head/Strange")
  return %0 : tensor<8xf32>
}
