// RUN: mirlo-opt %s --outline-parallel="threads=2 work=10" | FileCheck %s

// A mask cannot be passed to a function: the region computes it again from its size.

// CHECK-LABEL: func.func @masked
// CHECK:         call @masked_fork(%{{.*}}, %arg0, %arg2, %arg1) : (index, memref<64x8xf32>, index, memref<64x8xf32>) -> ()
// CHECK-LABEL: func.func private @masked_region
// CHECK-SAME:    (%{{.*}}: index, %{{.*}}: index, %[[X:.*]]: memref<64x8xf32>, %[[SIZE:.*]]: index, %[[Y:.*]]: memref<64x8xf32>)
// CHECK:         %[[MASK:.*]] = vector.create_mask %[[SIZE]] : vector<8xi1>
// CHECK:         scf.for
// CHECK:           vector.maskedload %[[X]]{{.*}}, %[[MASK]]
func.func @masked(%x: memref<64x8xf32>, %y: memref<64x8xf32>, %size: index) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %mask = vector.create_mask %size : vector<8xi1>
  scf.for %i = %c0 to %c64 step %c1 {
    %0 = vector.maskedload %x[%i, %c0], %mask, %zero : memref<64x8xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
    vector.store %0, %y[%i, %c0] : memref<64x8xf32>, vector<8xf32>
  } {tir.parallel}
  return
}
