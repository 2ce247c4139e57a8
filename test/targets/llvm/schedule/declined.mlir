// RUN: mirlo-opt %s --legalize --schedule="machine=avx512 explain" -o %t 2>&1 | FileCheck %s

// Every rule that does not apply says why.

// CHECK:      remark: '@reduce_sum' is scheduled by scalar_nest
// CHECK-NEXT:   contraction [llvm]: the body adds something else than a product
// CHECK-NEXT:   paged [llvm]: no block reads rows out of pages
// CHECK-NEXT:   blocked [llvm]: not two contractions (contractions=0)
// CHECK-NEXT:   staged_contractions [llvm]: no block is a product of two tensors
// CHECK-NEXT:   winograd_input [llvm]: the first block is not a Winograd transform (block=reduce_add)
// CHECK-NEXT:   winograd_gradient [llvm]: the first block is not a Winograd transform (block=reduce_add)
// CHECK-NEXT:   winograd_output [llvm]: the first block is not a Winograd transform (block=reduce_add)
// CHECK-NEXT:   elementwise [llvm]: a block reduces (block=reduce_add)
// CHECK-NEXT:   rows [llvm]: rows are too short for vectors (elements=6)
// CHECK-NEXT:   window [llvm]: no operand runs along the output's memory (block=reduce_add)
// CHECK-NEXT:   stages [llvm]: there is one block only, and no plan takes it
func.func @short_rows(%x: tensor<20x6xf32>) -> tensor<20xf32> {
  %0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>, keepdims = false} : (tensor<20x6xf32>) -> tensor<20xf32>
  return %0 : tensor<20xf32>
}
