// What was expected and did not come, and what came unexpected, fails.
// RUN: not mirlo-opt %s --split-input-file --verify-diagnostics --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-refuse --test-chat='loud' 2>&1 | FileCheck %s

// CHECK: verify-diagnostics-fails.mlir:7:1: error: unexpected error: pass 'test-refuse' failed: does not like the function 'f'
// CHECK-NEXT: func.func @f() {
// CHECK-NEXT: ^
func.func @f() {
  return
}

// -----

// CHECK: verify-diagnostics-fails.mlir:18:1: error: unexpected error: pass 'test-refuse' failed: does not like the function 'f'
// CHECK: verify-diagnostics-fails.mlir:17:1: error: expected error "does not like the function 'g'" was not produced
// CHECK-NEXT: expected-error

// expected-error @below {{does not like the function 'g'}}
func.func @f() {
  return
}

// -----

// The right text in the wrong line, and of the wrong kind.
// CHECK: verify-diagnostics-fails.mlir:31:1: error: unexpected remark: saw
// CHECK: error: unexpected warning: level 3, ratio 0.5, sizes (1, 2)
// CHECK: error: expected warning "saw" was not produced
// CHECK: error: expected remark "saw" was not produced

// expected-warning @below {{saw}}
func.func @g() {
// expected-remark @below {{saw}}
  return
}
