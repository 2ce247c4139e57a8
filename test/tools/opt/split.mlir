// Parts between lines `// -----` are parsed and run separately.
// RUN: mirlo-opt %s --split-input-file --canonicalize | FileCheck %s
// RUN: mirlo-opt %s --split-input-file -o /dev/null

// CHECK: func.func @f() -> i32
// CHECK-NEXT: arith.constant 1 : i32
func.func @f() -> i32 {
  %a = arith.constant 1 : i32
  return %a : i32
}

// -----

// CHECK: // -----
// CHECK: func.func @f() -> i64
// CHECK-NEXT: arith.constant 2 : i64
func.func @f() -> i64 {
  %a = arith.constant 2 : i64
  return %a : i64
}
