// RUN: not mirlo-opt %s --verify-schedule 2>&1 | FileCheck %s

// CHECK: pass 'verify-schedule' failed: there are no definitions to compare with: run 'keep-definitions' before 'schedule'
func.func private @kernel(%x: memref<20xf32>) attributes {tir.prim_func} {
  return
}
