// Flags that users of LLVM's driver know. (That each is known: test_flags.py.)
// RUN: mirlo-opt --show-dialects | FileCheck %s --check-prefix=DIALECTS
// DIALECTS: {{^}}arith
// DIALECTS: {{^}}relax
// DIALECTS: {{^}}tir

// RUN: mirlo-opt %s --cse --dump-pass-pipeline 2>&1 >%t | FileCheck %s --check-prefix=DUMP
// DUMP: {{^}}builtin.module(cse)
// RUN: FileCheck %s --check-prefix=RAN < %t
// RAN: func.func @f

// RUN: mirlo-opt %s --verify-roundtrip --cse --verify-each=false | FileCheck %s --check-prefix=RAN
// RUN: mirlo-opt %s --mlir-print-debuginfo --mlir-pretty-debuginfo | FileCheck %s --check-prefix=PRETTY
// PRETTY: arith.constant 1 : i32 "one"
// RUN: mirlo-opt %s --mlir-use-nameloc-as-prefix | FileCheck %s --check-prefix=PREFIX
// PREFIX: %one = arith.constant 1
// RUN: mirlo-opt %s --mlir-print-skip-regions | FileCheck %s --check-prefix=SKIP
// SKIP: module {...}

// One operation, with no module around it.
// RUN: not mirlo-opt %s --no-implicit-module --cse 2>&1 | FileCheck %s --check-prefix=ONE
// ONE: mirlo-opt: error: --no-implicit-module: {{.*}}llvm-flags.mlir is a 'func.func'; mirlo-opt writes modules, and runs passes on one: 'cse'. Leave the flag out, or write 'builtin.module' around it
// RUN: mirlo-opt %s -o %t.mlir
// RUN: mirlo-opt %t.mlir --no-implicit-module --cse | FileCheck %s --check-prefix=RAN

// RUN: mirlo-opt %s --cse --log-actions-to=- -o %t | FileCheck %s --check-prefix=ACTIONS
// ACTIONS: begins Action `pass-execution` running `cse` on Operation `builtin.module`
// ACTIONS-NEXT: completed `pass-execution` running `cse`
// RUN: mirlo-opt %s --cse --log-actions-to=%t.log -o /dev/null
// RUN: FileCheck %s --check-prefix=ACTIONS < %t.log
// RUN: not mirlo-opt %s --log-actions-to=%t-none/log 2>&1 | FileCheck %s --check-prefix=NO-LOG
// NO-LOG: mirlo-opt: error: cannot write '{{.*}}-none/log': No such file or directory

// RUN: mirlo-opt %s --canonicalize --mlir-timing --mlir-timing-display=list 2>&1 >%t | FileCheck %s --check-prefix=TIMES
// TIMES: ----Name----
// TIMES-NOT: Rest
// TIMES: (100.0%)            Total
// RUN: mirlo-opt %s --cse --mlir-pass-statistics --mlir-pass-statistics-display=list 2>&1 >%t | FileCheck %s --check-prefix=STATISTICS
// STATISTICS: Pass statistics report

// What has no meaning here says so.
// RUN: mirlo-opt %s --mlir-disable-threading --mlir-print-elementsattrs-with-hex-if-larger=0x10 2>&1 >%t | FileCheck %s --check-prefix=IGNORED
// IGNORED: mirlo-opt: warning: --mlir-disable-threading has no effect: passes run in one thread anyway
// IGNORED-NEXT: mirlo-opt: warning: --mlir-print-elementsattrs-with-hex-if-larger has no effect:
// RUN: FileCheck %s --check-prefix=RAN < %t

// RUN: not mirlo-opt %s --mlir-timing-display=flat 2>&1 | FileCheck %s --check-prefix=CHOICE
// CHOICE: mirlo-opt: error: flag '--mlir-timing-display' is list or tree, got 'flat'

// Reproducers: ours runs with mlir-opt, LLVM's with ours.
// RUN: mirlo-opt %s --cse --mlir-generate-reproducer=%t.1.mlir -o %t
// RUN: FileCheck %s --check-prefix=WRITTEN < %t.1.mlir
// WRITTEN: {{^}}// configuration: --pass-pipeline='builtin.module(cse)'
// WRITTEN: {-# external_resources: { mlir_reproducer: { pipeline: "builtin.module(cse)", disable_threading: true, verify_each: true } } #-}
// RUN: mirlo-opt --run-reproducer %S/Inputs/reproducer-of-llvm.mlir 2>&1 | FileCheck %s --check-prefix=READ
// READ-NOT: warning
// READ: arith.constant 1
// READ-NOT: arith.constant 1
// RUN: mirlo-opt %S/Inputs/reproducer-of-llvm.mlir 2>&1 | FileCheck %s --check-prefix=UNREAD
// UNREAD-NOT: warning
// UNREAD: arith.constant 1
// UNREAD-NEXT: arith.constant 1
// RUN: not mirlo-opt --run-reproducer %S/Inputs/reproducer-of-llvm-printing.mlir 2>&1 | FileCheck %s --check-prefix=TRUST
// TRUST: error: {{.*}}reproducer-of-llvm-printing.mlir: the file's resource 'mlir_reproducer' runs 'print-op-stats{json=true}', which may touch more than the module: files, other programs: give --trust-file if you trust the file

// Parts with markers of their own.
// RUN: mirlo-opt %S/Inputs/marked.mlir --split-input-file='// ==' --output-split-marker='// ~~' | FileCheck %s --check-prefix=MARK
// MARK: func.func private @f
// MARK: {{^}}// ~~
// MARK: func.func private @g

// RUN: mirlo-opt %S/Inputs/unexpected.mlir --split-input-file --verify-diagnostics=only-expected
// RUN: not mirlo-opt %S/Inputs/unexpected.mlir --split-input-file --verify-diagnostics=all 2>&1 | FileCheck %s --check-prefix=ALL
// ALL: error: unexpected error: use of undeclared SSA value name

// RUN: not mirlo-opt %S/Inputs/two-results.mlir 2>&1 | FileCheck %s --check-prefix=OPERATION
// OPERATION: error: 'func.return' op has 0 operands
// OPERATION: note: see current operation: "func.return"()
// RUN: not mirlo-opt %S/Inputs/two-results.mlir --mlir-print-op-on-diagnostic=false 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not mirlo-opt %S/Inputs/two-results.mlir --mlir-disable-diagnostic-notes 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: error: 'func.return' op has 0 operands
// NOTHING-NOT: note:
// RUN: not mirlo-opt %S/Inputs/two-results.mlir --mlir-print-stacktrace-on-diagnostic 2>&1 | FileCheck %s --check-prefix=STACK
// STACK: note: diagnostic emitted with trace:
// STACK: in _compile

// RUN: mirlo-opt %S/Inputs/dialect-of-irdl.mlir --irdl-file=%S/Inputs/irdl.mlir | FileCheck %s --check-prefix=IRDL
// IRDL: "toy.one"()

func.func @f() -> i32 {
  %a = arith.constant 1 : i32 loc("one")
  return %a : i32
}
