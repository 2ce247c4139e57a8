// The module after each step, in files that can be continued from.
// RUN: rm -rf %t
// RUN: mirlo-opt %s --pass-pipeline='verify,func.func(cse),canonicalize' --mlir-print-ir-tree-dir=%t/stages -o %t.whole
// RUN: ls %t/stages | FileCheck %s --check-prefix=FILES
// FILES: 00-input.mlir
// FILES-NEXT: 01-verify.mlir
// FILES-NEXT: 02-func.func-cse.mlir
// FILES-NEXT: 03-canonicalize.mlir
// RUN: mirlo-opt %t/stages/02-func.func-cse.mlir --canonicalize -o %t.continued
// RUN: diff %t.whole %t.continued
// RUN: FileCheck %s < %t/stages/02-func.func-cse.mlir
// RUN: FileCheck %s --check-prefix=LAST < %t.whole

// CHECK: %[[ONE:.*]] = arith.constant 1 : i32 loc(
// CHECK-NEXT: arith.addi %[[ONE]], %[[ONE]]
// LAST: arith.constant 2 : i32{{$}}
func.func @f() -> i32 {
  %a = arith.constant 1 : i32
  %b = arith.constant 1 : i32
  %c = arith.addi %a, %b : i32
  return %c : i32
}

// RUN: not mirlo-opt %s --split-input-file --mlir-print-ir-tree-dir=%t 2>&1 | FileCheck %s --check-prefix=SPLIT
// SPLIT: --mlir-print-ir-tree-dir takes one module
