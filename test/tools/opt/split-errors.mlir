// An error in one part leaves the others alone; its line is that of the whole file.
// RUN: not mirlo-opt %s --split-input-file > %t 2> %t.err
// RUN: FileCheck %s --check-prefix=OUT < %t
// RUN: FileCheck %s --check-prefix=ERR < %t.err

// OUT: @first
// OUT-NOT: @second
// OUT: @third
// ERR: split-errors.mlir:18:12: error: use of undeclared SSA value name
// ERR-NEXT: {{^}}    return %b : i32
// ERR-NEXT: {{^}}           ^

func.func private @first()

// -----

  func.func @second() -> i32 {
    return %b : i32
  }

// -----

func.func private @third()
