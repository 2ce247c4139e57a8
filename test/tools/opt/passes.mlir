// Each pass is a flag, and they run in the order given.
// RUN: mirlo-opt %s --cse --canonicalize | FileCheck %s --check-prefix=BOTH
// RUN: mirlo-opt %s -cse | FileCheck %s --check-prefix=CSE
// RUN: mirlo-opt %s --canonicalize=max-iterations=1 | FileCheck %s --check-prefix=BOTH
// RUN: mirlo-opt %s --pass-pipeline='builtin.module(func.func(cse), canonicalize{max-iterations=3})' | FileCheck %s --check-prefix=BOTH
// RUN: mirlo-opt %s --pass-pipeline 'verify,cse' | FileCheck %s --check-prefix=CSE
// RUN: mirlo-opt < %s | FileCheck %s --check-prefix=NONE
// RUN: mirlo-opt - -o %t < %s
// RUN: FileCheck %s --check-prefix=NONE < %t

// NONE-COUNT-2: arith.constant 1
// NONE: arith.addi

// CSE: %[[ONE:.*]] = arith.constant 1
// CSE-NEXT: arith.addi %[[ONE]], %[[ONE]]

// BOTH: arith.constant 2
// BOTH-NEXT: return

func.func @f() -> i32 {
  %a = arith.constant 1 : i32
  %b = arith.constant 1 : i32
  %c = arith.addi %a, %b : i32
  return %c : i32
}
