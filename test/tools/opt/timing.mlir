// RUN: mirlo-opt %s --pass-pipeline='verify,func.func(cse,canonicalize),cse' --mlir-timing 2>&1 >%t | FileCheck %s

// CHECK: Execution time report
// CHECK: Total Execution Time: {{[0-9.]+}} seconds
// CHECK: ----Wall Time----  --Runs--  ----Name----
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} Parse
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} 1 verify (Python)
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} func.func
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} 2 cse (upstream)
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} 2 canonicalize (upstream)
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} 1 cse (upstream)
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} Verify
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} Output
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}} Rest
// CHECK-NEXT: {{[0-9.]+ \(100.0%\)}} Total
// A pass may have an option named as the list of a pipeline.
// RUN: mirlo-opt %s --verify-bounds=steps=9 --mlir-timing -o /dev/null 2>&1 | FileCheck %s --check-prefix=STEPS
// STEPS: 1 verify-bounds (Python)
func.func private @f()
func.func private @g()
