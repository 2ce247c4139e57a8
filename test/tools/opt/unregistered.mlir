// RUN: not mirlo-opt %s 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: unregistered.mlir:8:12: error: operation being parsed with an unregistered dialect
// RUN: mirlo-opt %s --allow-unregistered-dialect | FileCheck %s
// CHECK: "mine.op"() : () -> ()

func.func @f() {
  // The place of the error.
  "mine.op"() : () -> ()
  return
}
