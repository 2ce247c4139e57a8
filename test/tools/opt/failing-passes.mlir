// A pass that fails is an error at the place that it names, exit code 1, and never a traceback.
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --cse --test-refuse=function=f -o %t.out > %t 2>&1
// RUN: FileCheck %s --check-prefix=REFUSE < %t
// RUN: not ls %t.out
// REFUSE: failing-passes.mlir:46:1: error: pass 'test-refuse' failed: does not like the function 'f'
// REFUSE-NEXT: {{^}}func.func @f(
// REFUSE-NEXT: {{^}}^
// REFUSE-NOT: module

// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-crash > %t 2>&1
// RUN: FileCheck %s --check-prefix=CRASH < %t
// CRASH: {{^}}error: pass 'test-crash' failed: ZeroDivisionError: too little of it
// CRASH-NOT: Traceback
// CRASH: note: this is a bug of the pass; '--mlir-pass-pipeline-crash-reproducer=FILE' writes what reproduces it

// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-crash --debug 2>&1 | FileCheck %s --check-prefix=DEBUG
// DEBUG: Traceback
// DEBUG: passes_for_tests.py
// DEBUG: error: pass 'test-crash' failed

// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-break-ir 2>&1 | FileCheck %s --check-prefix=BREAK
// BREAK: failing-passes.mlir:46:1: error: 'func.func' op entry block must have 0 arguments to match function signature
// BREAK: note: pass 'test-break-ir' failed: it left invalid IR

// Unverified, the broken IR is printed, in the generic form.
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-break-ir --no-verify-each 2>&1 | FileCheck %s --check-prefix=UNVERIFIED
// UNVERIFIED: "func.func"() <{function_type = () -> ()

// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-chat='loud words="a, b",c prefix={x y}' 2>&1 | FileCheck %s --check-prefix=CHAT
// CHAT: failing-passes.mlir:46:1: remark: x y a, b c
// CHAT: warning: level 3, ratio 0.5, sizes (1, 2)
// CHAT: module

// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-chat='loud words=a' --mlir-diagnostic-verbosity-level=warnings 2>&1 | FileCheck %s --check-prefix=WARNINGS
// WARNINGS-NOT: remark
// WARNINGS: warning: level 3
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-chat='loud words=a' --mlir-diagnostic-verbosity-level=errors 2>&1 | FileCheck %s --check-prefix=ERRORS
// ERRORS-NOT: remark
// ERRORS-NOT: warning
// ERRORS: module

// RUN: not mirlo-opt %s --legalize=target=zzz 2>&1 | FileCheck %s --check-prefix=OWN
// OWN: error: pass 'legalize' failed: unknown target 'zzz'; installed: {{.*}}llvm
// OWN-NOT: bug

func.func @f(%a: i32) -> i32 {
  return %a : i32
}
