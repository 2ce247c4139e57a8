// RUN: mirlo-opt %s --cse --verify --canonicalize --mlir-print-ir-after-all 2>&1 >%t | FileCheck %s --check-prefix=ALL
// ALL: {{^}}// -----// IR Dump After cse //----- //{{$}}
// ALL-NEXT: module {
// ALL: IR Dump After verify
// ALL: IR Dump After canonicalize

// RUN: mirlo-opt %s --cse --verify --canonicalize --mlir-print-ir-before-all 2>&1 >%t | FileCheck %s --check-prefix=BEFORE
// BEFORE: IR Dump Before cse
// BEFORE-COUNT-2: arith.constant
// BEFORE: IR Dump Before verify
// BEFORE: IR Dump Before canonicalize

// RUN: mirlo-opt %s --cse --verify --canonicalize --mlir-print-ir-after-change 2>&1 >%t | FileCheck %s --check-prefix=CHANGE
// CHANGE: IR Dump After cse
// CHANGE-NOT: IR Dump After verify
// CHANGE: IR Dump After canonicalize
// CHANGE: arith.constant 2

// RUN: mirlo-opt %s --cse --verify --canonicalize --mlir-print-ir-before=verify --mlir-print-ir-after=canonicalize,verify 2>&1 >%t | FileCheck %s --check-prefix=SOME
// SOME-NOT: cse
// SOME: IR Dump Before verify
// SOME: IR Dump After verify
// SOME-NOT: IR Dump Before canonicalize
// SOME: IR Dump After canonicalize

// A pass over functions shows the function that it ran on; or the module, if so asked.
// RUN: mirlo-opt %s --pass-pipeline='func.func(cse)' --mlir-print-ir-after-all 2>&1 >%t | FileCheck %s --check-prefix=FUNC
// FUNC: IR Dump After cse ('func.func' operation: @f)
// FUNC-NEXT: {{^}}func.func @f
// FUNC: IR Dump After cse ('func.func' operation: @g)
// FUNC-NEXT: {{^}}func.func private @g
// RUN: mirlo-opt %s --pass-pipeline='func.func(cse)' --mlir-print-ir-after-all --mlir-print-ir-module-scope 2>&1 >%t | FileCheck %s --check-prefix=SCOPE
// SCOPE: IR Dump After cse ('func.func' operation: @f)
// SCOPE-NEXT: {{^}}module {
// SCOPE: @f
// SCOPE: @g

// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --cse --test-break-ir --mlir-print-ir-after-failure 2>&1 | FileCheck %s --check-prefix=FAILURE
// FAILURE-NOT: IR Dump After cse
// FAILURE: IR Dump After test-break-ir Failed ('func.func' operation: @f)
// FAILURE-NEXT: "func.func"() <{function_type = () -> ()

func.func @f() -> i32 {
  %a = arith.constant 1 : i32
  %b = arith.constant 1 : i32
  %c = arith.addi %a, %b : i32
  return %c : i32
}

func.func private @g()
