// RUN: mirlo-opt %s --mlir-print-debuginfo | FileCheck %s --check-prefix=DEBUG
// DEBUG: return {{.*}} loc(#[[L:.*]])
// DEBUG: printing.mlir":{{[0-9]+}}:3

// RUN: mirlo-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// GENERIC: "func.return"

// RUN: mirlo-opt %s --mlir-print-local-scope --mlir-print-debuginfo | FileCheck %s --check-prefix=LOCAL
// LOCAL: return {{.*}} loc("{{.*}}printing.mlir":{{[0-9]+}}:3)

// RUN: mirlo-opt %s --mlir-elide-elementsattrs-if-larger=2 | FileCheck %s --check-prefix=ELIDE
// ELIDE: dense_resource<__elided__>

// Bytecode, from a file and from a pipe.
// RUN: mirlo-opt %s --emit-bytecode -o %t.mlirbc
// RUN: mirlo-opt %t.mlirbc | FileCheck %s --check-prefix=BACK
// RUN: mirlo-opt %s --emit-bytecode | mirlo-opt --cse | FileCheck %s --check-prefix=BACK
// BACK: arith.constant dense<[1, 2, 3]>

// RUN: mirlo-opt %s -o %t.mlir
// RUN: FileCheck %s --check-prefix=BACK < %t.mlir

func.func @f() -> tensor<3xi32> {
  %a = arith.constant dense<[1, 2, 3]> : tensor<3xi32>
  return %a : tensor<3xi32>
}
