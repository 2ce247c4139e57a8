// RUN: mirlo explain %s --plugin %root/test/passes/rules/Inputs/rules_for_tests.py | FileCheck %s --match-full-lines
// RUN: mirlo explain %s --plugin %root/test/passes/rules/Inputs/rules_for_tests.py --node head/Chain --json | FileCheck %s --check-prefix=JSON
// RUN: mirlo explain %s --plugin %root/test/passes/rules/Inputs/rules_for_tests.py --node head/Chain | FileCheck %s --check-prefix=ONE
// RUN: not mirlo explain %s --plugin %root/test/passes/rules/Inputs/rules_for_tests.py --node head/Chian 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: mirlo explain %s --plugin %root/test/passes/rules/Inputs/rules_for_tests.py --strategy test.chain=any_size | FileCheck %s --check-prefix=STRATEGY
// RUN: not mirlo explain %s --strategy any_size 2>&1 | FileCheck %s --check-prefix=FORM

// STRATEGY: test.chain: any_size [default] {{.*}}, as requested by strategy 'any_size' → @chain
// FORM:     error: argument --strategy: expected OP=NAME or 'measure', found 'any_size'

// CHECK:      node body/Double
// CHECK-NEXT:   no operator of it was left to legalize: it was simplified away, or its result is known
// CHECK-NEXT: node head/Softmax
// CHECK-NEXT:   relax.softmax: softmax [default] {{.*}}softmax.py:{{[0-9]+}} → @softmax
// CHECK-NEXT:   kernels: @fused_softmax_chain
// CHECK-NEXT: node head/Chain
// CHECK-NEXT:   test.chain: any_size [default] {{.*}}rules_for_tests.py:{{[0-9]+}} → @chain
// CHECK-NEXT:     declined: sized [llvm]: another size (wanted=1)
// CHECK-NEXT:     declined: twos [llvm]: another size (wanted=2)
// CHECK-NEXT:   kernels: @fused_softmax_chain
// CHECK-NEXT: kernel @fused_softmax_chain: head/Softmax, head/Chain
// CHECK-NEXT:   schedule: rows [llvm] {{.*}}rows.py:{{[0-9]+}}
// CHECK-NEXT:     declined: contraction [llvm]: {{.*}}
// CHECK:          declined: elementwise [llvm]: {{.*}}
// CHECK-NEXT:   chosen: lanes={{[0-9]+}}, unroll={{[0-9]+}}
// CHECK-NEXT:   tir.exp on vector<{{.*}}xf32>: exp [{{llvm|default}}] {{.*}}exponential.py:{{[0-9]+}}
// CHECK:      memory of @main: {{.*}}, at least {{.*}} needed

// ONE:     node head/Chain
// ONE-NOT: node
// ONE:     kernel @fused_softmax_chain

// JSON:      "name": "head/Chain",
// JSON-NEXT: "operators": [
// JSON:      "operator": "test.chain",
// JSON:      "name": "any_size",
// JSON:      "strategy": null,
// JSON-NEXT: "created": [
// JSON-NEXT:   "@chain"
// JSON:      "declined": [
// JSON:      "name": "sized",
// JSON:      "reason": "another size",
// JSON-NEXT: "facts": {
// JSON-NEXT:   "wanted": 1

// UNKNOWN: mirlo: error[{{.*}}]: the model has no node 'head/Chian'; did you mean 'head/Chain'?

func.func @main(%x: tensor<8x16xf32> {relax.name = "x"}) -> (tensor<8x16xf32> {relax.name = "y"}) {
  %0 = "relax.reshape"(%x) {shape = [8, 16]} : (tensor<8x16xf32>) -> tensor<8x16xf32> loc("body/Double")
  %1 = "relax.softmax"(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32> loc("head/Softmax")
  %2 = "test.chain"(%1) : (tensor<8x16xf32>) -> tensor<8x16xf32> loc("head/Chain")
  return %2 : tensor<8x16xf32>
}
