// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=returns_nothing' 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=returns_another_type' 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=returns_two' 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=returns_text' 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=returns_itself' 2>&1 | FileCheck %s --check-prefix=ITSELF
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=raises' 2>&1 | FileCheck %s --check-prefix=RAISES
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule=declines_late' 2>&1 | FileCheck %s --check-prefix=LATE
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='operator=relax.rleu' 2>&1 | FileCheck %s --check-prefix=OPERATOR
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='operator=relax.reshape' 2>&1 | FileCheck %s --check-prefix=LEGAL
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='operator=relax.tanh' 2>&1 | FileCheck %s --check-prefix=UNUSED
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --test-legalize-with='rule= strategy=two' 2>&1 | FileCheck %s --check-prefix=STRATEGY
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rules_for_tests.py --legalize='skip=relax.rleu' 2>&1 | FileCheck %s --check-prefix=SKIP
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/rule_for_nothing.py --legalize='skip=relax.relu' 2>&1 | FileCheck %s --check-prefix=REGISTERED

// A rule is never silently successful, nor silently of no effect.

// NOTHING:    error: pass 'test-legalize-with' failed: relax.relu, "act" at {{.*}}: rule 'returns_nothing for relax.relu on custom' at {{.*}}rules_for_tests.py:{{[0-9]+}} returned nothing: return a result or decline('why')
// TYPE:       error: {{.*}}: rule 'returns_another_type for relax.relu on custom' at {{.*}} returned tensor<3xf32> for result #0, which is tensor<4xf32>
// TWO:        error: {{.*}}: rule 'returns_two for relax.relu on custom' at {{.*}} returned 2 values for 1 results
// TEXT:       error: {{.*}}: rule 'returns_text for relax.relu on custom' at {{.*}} returned a str for result #0: expected a value, which the builder's methods give
// ITSELF:     error: {{.*}}: rule 'returns_itself for relax.relu on custom' at {{.*}} returned result #0 itself: nothing would change
// RAISES:     error: {{.*}}: rule 'raises for relax.relu on custom' at {{.*}}rules_for_tests.py:{{[0-9]+}} raised KeyError: 'weight' (at {{.*}}rules_for_tests.py:{{[0-9]+}})
// LATE:       error: {{.*}}: rule 'declines_late for relax.relu on custom' at {{.*}} declined after it had made test.chain: a rule decides first, then builds
// OPERATOR:   error: {{.*}}a legalization is given for 'relax.rleu' (at {{.*}}rules_for_tests.py:{{[0-9]+}}), which is not an operator; did you mean 'relax.relu'?
// LEGAL:      error: {{.*}}a legalization is given for 'relax.reshape' (at {{.*}}), which is never legalized: it is part of the level below
// UNUSED:     warning: the rule given for 'relax.tanh' was never tried: there is no such operator here
// STRATEGY:   misuse.mlir:33:8: error: {{.*}}'test.chain' has no strategy 'two'; did you mean 'twos'?; it has: sized, twos, any_size
// SKIP:       error: {{.*}}'relax.rleu' is to be skipped, which is not an operator; did you mean 'relax.relu'?
// REGISTERED: error: {{.*}}rule 'lost for relax.sofmax on llvm' at {{.*}}rule_for_nothing.py:{{[0-9]+}} is for 'relax.sofmax', which is not an operator; did you mean 'relax.softmax'?

func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("act"("misuse.mlir":32:8))
  %1 = "test.chain"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
