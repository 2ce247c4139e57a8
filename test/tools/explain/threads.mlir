// RUN: mirlo explain %s --threads 2 --target 'llvm{thread_work=400000}' | FileCheck %s

// How many rows a call has is not known: threads share the loop from a number of iterations on.
// CHECK: kernel @tanh
// CHECK: parallel loops: 1 on several threads, those of fewer than {{[0-9]+}} iterations on one
func.func @main(%x: tensor<?x4096xf32, #relax.dims<["n", 4096]>>) -> tensor<?x4096xf32, #relax.dims<["n", 4096]>> {
  %0 = "relax.tanh"(%x) : (tensor<?x4096xf32, #relax.dims<["n", 4096]>>) -> tensor<?x4096xf32, #relax.dims<["n", 4096]>>
  return %0 : tensor<?x4096xf32, #relax.dims<["n", 4096]>>
}
