// RUN: mirlo-opt %s --legalize --schedule=machine=avx512 | FileCheck %s

// Each lane pools a window of its own. The first and the last row of windows are parts of their own, without the elements
// that lie in the padding; the first and last lanes of a row read them under a mask.

// CHECK-LABEL: func.func private @max_pool
// CHECK-SAME:    rule = "window"}
// CHECK-NOT:     scf.if
// CHECK-NOT:     arith.cmpi
// CHECK:         %[[MASK:.*]] = arith.constant dense<[false, true, true, true,
// CHECK:         vector.maskedload %{{.*}}, %[[MASK]]
// CHECK:         arith.maximumf %{{.*}} : vector<16xf32>
// CHECK:         vector.constant_mask [15]
// CHECK:         vector.store %{{.*}} : memref<256xf32>, vector<16xf32>
// CHECK:         return
func.func @pool(%x: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %0 = "relax.max_pool"(%x) {kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>} : (tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %0 : tensor<1x2x8x16xf32>
}

// A mean over the first dim: lanes along the second, and the division on the totals in registers.

// CHECK-LABEL: func.func private @reduce_mean
// CHECK-SAME:    rule = "window"
// CHECK:       %[[TOTALS:.*]]:4 = scf.for %{{.*}} = %c0 to %c30 {{.*}} iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK-COUNT-4: arith.addf
// CHECK:       %[[MEAN:.*]] = arith.{{.*}} %[[TOTALS]]#0
// CHECK:       vector.store %[[MEAN]]
func.func @mean(%x: tensor<30x64xf32>) -> tensor<64xf32> {
  %0 = "relax.reduce_mean"(%x) {axes = array<i64: 0>, keepdims = false} : (tensor<30x64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
