// A pass over functions runs on each function of the module, whether nested or not; one without a body is left alone.
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-rename | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --pass-pipeline='func.func(test-rename)' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --pass-pipeline='builtin.module(builtin.module(test-rename{prefix="y "}))' | FileCheck %s --check-prefix=INNER

// CHECK: @x_f
// CHECK: @declared
// CHECK: @inner
// CHECK: @g

// INNER: @f
// INNER: @inner
// INNER: @"y g"

// A pass of MLIR that is only for functions, too.
// RUN: mirlo-opt %s --llvm-request-c-wrappers | FileCheck %s --check-prefix=UPSTREAM
// UPSTREAM: @f() attributes {llvm.emit_c_interface}

func.func @f() {
  return
}
func.func private @declared()
builtin.module @inner {
  func.func @g() {
    return
  }
}
