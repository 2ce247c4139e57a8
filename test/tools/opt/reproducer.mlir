// The IR before the failing step, and what remained, in a file that runs with one flag.
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --pass-pipeline='cse,func.func(canonicalize),test-refuse{function=g},verify' --mlir-pass-pipeline-crash-reproducer=%t.mlir 2>&1 | FileCheck %s --check-prefix=FIRST
// FIRST: reproducer.mlir:36:1: error: pass 'test-refuse' failed: does not like the function 'g'
// FIRST: note: 'mirlo-opt --run-reproducer --trust-file {{.*}}.mlir' runs this again

// RUN: FileCheck %s --check-prefix=FILE < %t.mlir
// FILE: {{^}}// configuration: --pass-pipeline='builtin.module(test-refuse{function=g},verify)' --load-pass-plugin={{.*}}passes_for_tests.py
// FILE: arith.constant 2

// RUN: not mirlo-opt --run-reproducer --trust-file %t.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN
// AGAIN: reproducer.mlir:36:1: error: pass 'test-refuse' failed: does not like the function 'g'

// A file is not the user's word: what it names is only run where the user says so.
// RUN: not mirlo-opt --run-reproducer %t.mlir 2>&1 | FileCheck %s --check-prefix=PLUGIN
// PLUGIN: error: {{.*}}.mlir: the file's first line loads the plug-in '{{.*}}passes_for_tests.py', which is code: give --trust-file if you trust the file

// The flags that matter are replayed.
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-break-ir --test-crash --no-verify-each --mlir-pass-pipeline-crash-reproducer=%t.2.mlir --allow-unregistered-dialect > %t.log 2>&1
// RUN: FileCheck %s --check-prefix=FLAGS < %t.2.mlir
// FLAGS: {{^}}// configuration: --pass-pipeline='builtin.module(test-crash)' --no-verify-each --allow-unregistered-dialect

// Where no pass fails, no file is left.
// RUN: mirlo-opt %s --cse --mlir-pass-pipeline-crash-reproducer=%t.3.mlir
// RUN: not ls %t.3.mlir

// RUN: not mirlo-opt --run-reproducer %s 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: reproducer.mlir is not a reproducer
// RUN: not mirlo-opt --run-reproducer --cse %t.mlir 2>&1 | FileCheck %s --check-prefix=BESIDE
// BESIDE: name no passes beside it

func.func @f() -> i32 {
  %a = arith.constant 1 : i32
  %c = arith.addi %a, %a : i32
  return %c : i32
}
func.func @g() {
  return
}
