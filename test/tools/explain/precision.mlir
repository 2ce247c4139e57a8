// RUN: mirlo explain %s --precision bf16 --target 'llvm{cpu=znver4}' | FileCheck %s
// RUN: mirlo explain %s --precision bf16 --target 'llvm{cpu=znver4}' --kernel cast_0 | FileCheck %s --check-prefix=TRACE
// RUN: not mirlo explain relax.matmul --precision bf16 2>&1 | FileCheck %s --check-prefix=RULES

// CHECK: kernel @cast_0
// TRACE: trace, for schedules={"cast_0"
// RULES: --precision, --database, --no-tuning, --shape, --dim and options of packages are for models

func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<8x32xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  return %0 : tensor<8x32xf32>
}
