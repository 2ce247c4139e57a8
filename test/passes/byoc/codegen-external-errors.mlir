// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/generators.py --codegen-external=bundles=%t --split-input-file --verify-diagnostics
// RUN: not mirlo-opt --run-reproducer --trust-file %t/raises.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: not mirlo-opt --run-reproducer --trust-file %t/crashes.mlir 2>&1 | FileCheck %s --check-prefix=CRASH

// What is written for a failure fails again.
// AGAIN: raised ValueError at generators.py:{{[0-9]+}}: no such instruction
// CRASH: crashed (signal SIGSEGV)

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'raises' (file {{.*}}/generators.py) raised ValueError at generators.py:{{[0-9]+}}: no such instruction; it was given 'r_0' {{\(from relax.relu .*\)}}; 'mirlo-opt --run-reproducer {{.*}}/raises.mlir' runs it again}}
  builtin.module @r attributes {relax.external = "raises"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'raises-apart' (file {{.*}}/generators.py) raised ValueError at generators.py:{{[0-9]+}}: no such instruction; it was given}}
  builtin.module @r attributes {relax.external = "raises-apart"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'garbage' (file {{.*}}/generators.py) gave a int: expected NativeCode or an Artifact}}
  builtin.module @r attributes {relax.external = "garbage"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'forgets' (file {{.*}}/generators.py) gave an artifact without the function 'r_0'; it has: none}}
  builtin.module @r attributes {relax.external = "forgets"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'invents' (file {{.*}}/generators.py) gave an artifact that asks for the constant 'w9', which the module does not have}}
  builtin.module @r attributes {relax.external = "invents"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'crashes' (file {{.*}}/generators.py) crashed {{\(signal SIGSEGV\)}}; it was given 'r_0'}}
  builtin.module @r attributes {relax.external = "crashes"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'exits' (file {{.*}}/generators.py) ended its process with code 3}}
  builtin.module @r attributes {relax.external = "exits"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error-re @below {{pass 'codegen-external' failed: the code generator of target 'crashes-here' (file {{.*}}/generators.py) crashed {{\(signal SIGSEGV\)}}; it was given 'r_0'{{.*}}runs it again}}
  builtin.module @r attributes {relax.external = "crashes-here"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error @below {{pass 'codegen-external' failed: unknown target 'nobody'; }}
  builtin.module @r attributes {relax.external = "nobody"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
  }
}

// -----

module {
  // expected-error @below {{pass 'codegen-external' failed: target 'llvm' (package 'mirlo') has no code generator: it compiles whole models only}}
  builtin.module @r attributes {relax.external = "llvm"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
  }
}

// -----

module {
  builtin.module @r attributes {relax.external = "toy"} {
    func.func @r_0(%x: tensor<4xf32>) -> tensor<4xf32> {
      // expected-error @below {{pass 'codegen-external' failed: function '@r_0' of an external module has control flow, scf.execute_region: code generators take operators and prim functions}}
      %0 = scf.execute_region -> tensor<4xf32> {
        scf.yield %x : tensor<4xf32>
      }
      return %0 : tensor<4xf32>
    }
  }
}

// -----

module {
  builtin.module @r attributes {relax.external = "toy"} {
    // expected-error @below {{pass 'codegen-external' failed: function '@r_0' of an external module has a value of type i1: expected tensors}}
    func.func @r_0(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
  }
}
