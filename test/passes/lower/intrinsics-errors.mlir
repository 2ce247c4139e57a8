// An intrinsic that no rule takes is an error at its place, with every rule that was tried and its reason.
// RUN: not mirlo-opt %s --lower-intrinsics 2>&1 | FileCheck %s
// RUN: not mirlo-opt %s --lower-intrinsics=target=llvn 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not mirlo-opt %s --lower-intrinsics=target=default 2>&1 | FileCheck %s --check-prefix=DEFAULT

// CHECK: intrinsics-errors.mlir:18:8: error: pass 'lower-intrinsics' failed: no rule lowers 'tir.exp' on (vector<4xf8E5M2>) for target 'llvm'; these declined:
// CHECK-NEXT: exponential.py:{{[0-9]+}}: exp [llvm]: no instruction scales this type (dtype=f8E5M2)
// CHECK-NEXT: exponential.py:{{[0-9]+}}: exp [default]: only for f32 and f64 (dtype=f8E5M2)
// CHECK-NEXT: widen.py:{{[0-9]+}}: compute_in_f32 [default]: widens only 16-bit floats (dtype=f8E5M2)
// CHECK-NOT: Traceback

// TARGET: error: pass 'lower-intrinsics' failed: unknown target 'llvn'; did you mean 'llvm'?

// DEFAULT: intrinsics-errors.mlir:18:8: error: pass 'lower-intrinsics' failed: no rule lowers 'tir.exp' on (vector<4xf8E5M2>) for target 'default'; these declined:
// DEFAULT-NEXT: exp [default]: only for f32 and f64

func.func @f(%x: vector<4xf8E5M2>) -> vector<4xf8E5M2> {
  %0 = "tir.exp"(%x) : (vector<4xf8E5M2>) -> vector<4xf8E5M2>
  return %0 : vector<4xf8E5M2>
}
