// RUN: mirlo-opt %s --legalize --schedule="machine=avx512 threads=2 explain" -o %t 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: FileCheck %s < %t

// Scores of 700 keys do not all fit: blocks of whole tiles of rows. Their memory is that of one block.
// WHY:         '@attention' is scheduled by blocked
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME:    tir.schedule = {block = [[B:[0-9]+]] : i64, last_tile = array<i64: {{[0-9]+}}, 32>, rule = "blocked", tile
// CHECK-NOT:     1x2x400x700
// CHECK:         scf.for
// CHECK:         tir.parallel
func.func @long(%q: tensor<1x2x400x32xf32>, %k: tensor<1x2x700x32xf32>, %v: tensor<1x2x700x32xf32>) -> tensor<1x2x400x32xf32> {
  %0 = "relax.attention"(%q, %k, %v) : (tensor<1x2x400x32xf32>, tensor<1x2x700x32xf32>, tensor<1x2x700x32xf32>) -> tensor<1x2x400x32xf32>
  return %0 : tensor<1x2x400x32xf32>
}

// Half floats are copied in the type of the sums, which blocks do not do.
// WHY:         '@attention_0' is scheduled by staged_contractions
// WHY:           blocked [llvm]: a contraction needs a copy of an operand
func.func @half(%q: tensor<1x2x40x32xf16>, %k: tensor<1x2x70x32xf16>, %v: tensor<1x2x70x32xf16>) -> tensor<1x2x40x32xf16> {
  %0 = "relax.attention"(%q, %k, %v) : (tensor<1x2x40x32xf16>, tensor<1x2x70x32xf16>, tensor<1x2x70x32xf16>) -> tensor<1x2x40x32xf16>
  return %0 : tensor<1x2x40x32xf16>
}

// WHY:         '@matmul' is scheduled by contraction
// WHY:         '@softmax' is scheduled by
// WHY:           blocked [llvm]: not two contractions (contractions=0)
func.func @apart(%x: tensor<40x40xf32>) -> tensor<40x40xf32> {
  %0 = "relax.matmul"(%x, %x) : (tensor<40x40xf32>, tensor<40x40xf32>) -> tensor<40x40xf32>
  %1 = "relax.softmax"(%0) : (tensor<40x40xf32>) -> tensor<40x40xf32>
  return %1 : tensor<40x40xf32>
}

// Of what a causal mask hides only what lies in blocks with something to see is computed: the columns end where the
// block's last row does.
// CHECK-LABEL: func.func private @attention_1(
// CHECK-SAME:    hidden = true
// CHECK:         arith.floordivsi
// CHECK:         arith.maxsi
// CHECK:         %[[END:.*]] = arith.minsi %{{.*}}, %c512
// CHECK:         scf.for %{{.*}} = %c0{{.*}} to %[[END]] step
func.func @causal(%q: tensor<1x2x512x32xf32>, %k: tensor<1x2x512x32xf32>, %v: tensor<1x2x512x32xf32>) -> tensor<1x2x512x32xf32> {
  %0 = "relax.attention"(%q, %k, %v) {causal = true} : (tensor<1x2x512x32xf32>, tensor<1x2x512x32xf32>, tensor<1x2x512x32xf32>) -> tensor<1x2x512x32xf32>
  return %0 : tensor<1x2x512x32xf32>
}

// Of any length: blocks of rows whose number depends on how many keys there are. Threads take the next block from a
// counter, and compute it in a slot of their own.
// WHY:         '@attention_2' is scheduled by blocked
// CHECK-LABEL: func.func private @attention_2(
// CHECK-SAME:    block = "14*max(4, min({{[^"]*}}, floordiv(max(floordiv(65536, s), min(128, floordiv(1048576, s))), 14)))", hidden = true
// CHECK-SAME:    tir.symbols = ["s", "b"]
// CHECK:         memref.view
// CHECK-SAME:      tir.shared
// CHECK:         memref.atomic_rmw addi
// CHECK:         scf.for {{.*}} step %c14
// CHECK:         tir.parallel
func.func @open(%q: tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>>) -> tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>> {
  %0 = "relax.attention"(%q, %q, %q) {causal = true} : (tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>>, tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>>, tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>>) -> tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>>
  return %0 : tensor<?x2x?x32xf32, #relax.dims<["b", 2, "s", 32]>>
}
