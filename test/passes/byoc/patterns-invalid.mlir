// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=twice 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=typo 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=typo-attr 2>&1 | FileCheck %s --check-prefix=ATTR
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=typo-operand 2>&1 | FileCheck %s --check-prefix=OPERAND
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=row 2>&1 | FileCheck %s --check-prefix=ROW
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=raises 2>&1 | FileCheck %s --check-prefix=RAISES
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=silent 2>&1 | FileCheck %s --check-prefix=SILENT
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=unconnected 2>&1 | FileCheck %s --check-prefix=UNCONNECTED
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=empty 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern=target=alternative 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --fuse-by-pattern='target=optional functions=mian' 2>&1 | FileCheck %s --check-prefix=FUNCTION
// RUN: not mirlo-opt %s --fuse-by-pattern 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --partition=targets=llvm,optional 2>&1 | FileCheck %s --check-prefix=HOST
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --partition=targets=optional,optional 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/pattern_tables.py --rewrite=rules=substract 2>&1 | FileCheck %s --check-prefix=RULE
// RUN: not mirlo-opt %s --run-on-external='target=x pipeline=fold-constants' 2>&1 | FileCheck %s --check-prefix=PIPELINE

// Mistakes of those who write patterns are told in words; none is silence, none is a traceback.

// TWICE: error: pass 'fuse-by-pattern' failed: target 'twice': {{.*}}pattern_tables.py:{{[0-9]+}}: pattern 'twice.add': the same pattern object stands in 2 places of a pattern: anything; call .named('x') on it if all must be the same value, use .dup() if they may differ
// TYPO: pattern 'typo.conv': a pattern names 'relax.conf', which is not an operator; did you mean 'relax.conv'?
// ATTR: pattern 'typo-attr.conv': a pattern asks for the attribute 'stride' of 'relax.conv', which has none such; did you mean 'strides'?
// OPERAND: pattern 'typo-operand.conv': a pattern asks for the operand 'weigth' of 'relax.conv', which has none such; did you mean 'weight'?
// ROW: target 'row': a row of its patterns must be (name, pattern) or (name, pattern, check), got ('conv', 'relax.conv')
// RAISES: predicate 'bad' at {{.*}}pattern_tables.py:{{[0-9]+}} raised ZeroDivisionError: division by zero
// SILENT: predicate 'mute' at {{.*}}pattern_tables.py:{{[0-9]+}} must return True or a reason (text, or decline(...)), got None
// UNCONNECTED: the parts of a pattern are not connected: relax.tanh shares no labelled part and no link
// EMPTY: target 'empty' has no patterns: it takes no parts of a model
// UNKNOWN: no target 'alternative' with patterns; did you mean 'alternatives'?
// FUNCTION: there is no function '@mian' with a body; there are: main
// TARGET: 'fuse-by-pattern' needs the option 'target'
// HOST: target 'llvm' takes all that is left: nothing would come to 'optional'
// AGAIN: target 'optional' is named twice
// RULE: there is no rewrite 'substract'; did you mean 'subtract'?
// PIPELINE: 'fold-constants'{{.*}} did you mean 'fold-constant'?

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
