// A module carries its weights by reference: `relax.params` lists files, relative to the IR's. Arrays that are in no file
// yet are written beside the output.
// RUN: rm -rf %t && mkdir -p %t/sub
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-add-parameter -o %t/one.mlir
// RUN: FileCheck %s --check-prefix=ONE < %t/one.mlir
// ONE: module attributes {relax.params = ["one.mlir.params"]}

// RUN: mirlo-opt %t/one.mlir --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-list-parameters --test-add-parameter='parameter=second value=2' -o %t/sub/two.mlir 2>&1 | FileCheck %s --check-prefix=READ
// READ: remark: parameter made sums to 4.0
// RUN: FileCheck %s --check-prefix=TWO < %t/sub/two.mlir
// TWO: module attributes {relax.params = ["../one.mlir.params", "two.mlir.params"]}

// RUN: mirlo-opt %t/sub/two.mlir --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-list-parameters --emit-bytecode -o %t/three.mlirbc 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: mirlo-opt %t/three.mlirbc --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-list-parameters 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: remark: parameter made sums to 4.0
// BOTH-NEXT: remark: parameter second sums to 8.0

// A reproducer takes them along.
// RUN: not mirlo-opt %t/one.mlir --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-add-parameter='parameter=second value=2' --test-list-parameters --test-crash --mlir-pass-pipeline-crash-reproducer=%t/sub/crash.mlir 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: FileCheck %s --check-prefix=CRASH < %t/sub/crash.mlir
// CRASH: relax.params = ["../one.mlir.params", "crash.mlir.params"]

// In a pipe the files are named from the current folder.
// RUN: mirlo-opt %t/one.mlir | mirlo-opt --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-list-parameters 2>&1 | FileCheck %s --check-prefix=READ

// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-add-parameter 2>&1 | FileCheck %s --check-prefix=LOST
// LOST: warning: the values of 1 parameters that passes made ('made', ...) are lost

// RUN: rm %t/one.mlir.params
// RUN: not mirlo-opt %t/one.mlir 2>&1 | FileCheck %s --check-prefix=GONE
// GONE: mirlo-opt: error: cannot open 'one.mlir.params', which the module's attribute 'relax.params' lists:

// RUN: echo 'module attributes {relax.params = 3 : i32} {}' > %t/bad.mlir
// RUN: not mirlo-opt %t/bad.mlir 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: mirlo-opt: error: the module's attribute 'relax.params' must be a list of file names, got 3 : i32
