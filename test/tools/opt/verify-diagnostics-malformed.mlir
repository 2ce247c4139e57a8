// A comment that looks like an expectation, but is none, would never fail: it is an error.
// RUN: not mirlo-opt %s --verify-diagnostics 2>&1 | FileCheck %s
// CHECK: mirlo-opt: error: {{.*}}verify-diagnostics-malformed.mlir:6: this comment is not understood
// CHECK-SAME: write it as

// expected-error @next {{text}}
func.func private @f()
