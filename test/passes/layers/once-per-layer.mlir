// RUN: mirlo-opt %s --pass-pipeline='builtin.module(once-per-layer{passes="simplify" explain=true})' 2>&1 | FileCheck %s

// The pass runs on six of nine equal layers, and one of these is repeated for the other three: each layer loses its
// product by one, and adds the argument of its own.
// CHECK-NOT:     remark
// CHECK:         func.func @main
// CHECK-NOT:     "relax.multiply"
// CHECK:         "relax.add"(%arg0, %arg1)
// CHECK:         "relax.add"(%{{.*}}, %arg2)
// CHECK:         %[[X2:.*]] = "relax.negative"
// CHECK-NEXT:    %[[S2:.*]] = "relax.add"(%[[X2]], %arg3)
// CHECK-NEXT:    %[[R2:.*]] = "relax.relu"(%[[S2]])
// CHECK-NEXT:    %[[T2:.*]] = "relax.tanh"(%[[R2]])
// CHECK-NEXT:    %[[E2:.*]] = "relax.exp"(%[[T2]])
// CHECK-NEXT:    %[[G2:.*]] = "relax.sigmoid"(%[[E2]])
// CHECK-NEXT:    %[[X3:.*]] = "relax.negative"(%[[G2]])
// CHECK-NEXT:    %[[S3:.*]] = "relax.add"(%[[X3]], %arg4)
// CHECK-NEXT:    %[[R3:.*]] = "relax.relu"(%[[S3]])
// CHECK-COUNT-6: "relax.tanh"
// CHECK-NOT:     "relax.tanh"
// CHECK-NOT:     "relax.multiply"
// CHECK:         return %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[R2]], %[[R3]],
!t = tensor<4xf32>
func.func @main(%x0: !t, %c0: !t, %c1: !t, %c2: !t, %c3: !t, %c4: !t, %c5: !t, %c6: !t, %c7: !t, %c8: !t) -> (!t, !t, !t, !t, !t, !t, !t, !t, !t, !t) {
  %s0 = "relax.add"(%x0, %c0) : (!t, !t) -> !t
  %r0 = "relax.relu"(%s0) : (!t) -> !t
  %f0 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m0 = "relax.multiply"(%r0, %f0) : (!t, tensor<f32>) -> !t
  %t0 = "relax.tanh"(%m0) : (!t) -> !t
  %e0 = "relax.exp"(%t0) : (!t) -> !t
  %g0 = "relax.sigmoid"(%e0) : (!t) -> !t
  %x1 = "relax.negative"(%g0) : (!t) -> !t
  %s1 = "relax.add"(%x1, %c1) : (!t, !t) -> !t
  %r1 = "relax.relu"(%s1) : (!t) -> !t
  %f1 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m1 = "relax.multiply"(%r1, %f1) : (!t, tensor<f32>) -> !t
  %t1 = "relax.tanh"(%m1) : (!t) -> !t
  %e1 = "relax.exp"(%t1) : (!t) -> !t
  %g1 = "relax.sigmoid"(%e1) : (!t) -> !t
  %x2 = "relax.negative"(%g1) : (!t) -> !t
  %s2 = "relax.add"(%x2, %c2) : (!t, !t) -> !t
  %r2 = "relax.relu"(%s2) : (!t) -> !t
  %f2 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m2 = "relax.multiply"(%r2, %f2) : (!t, tensor<f32>) -> !t
  %t2 = "relax.tanh"(%m2) : (!t) -> !t
  %e2 = "relax.exp"(%t2) : (!t) -> !t
  %g2 = "relax.sigmoid"(%e2) : (!t) -> !t
  %x3 = "relax.negative"(%g2) : (!t) -> !t
  %s3 = "relax.add"(%x3, %c3) : (!t, !t) -> !t
  %r3 = "relax.relu"(%s3) : (!t) -> !t
  %f3 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m3 = "relax.multiply"(%r3, %f3) : (!t, tensor<f32>) -> !t
  %t3 = "relax.tanh"(%m3) : (!t) -> !t
  %e3 = "relax.exp"(%t3) : (!t) -> !t
  %g3 = "relax.sigmoid"(%e3) : (!t) -> !t
  %x4 = "relax.negative"(%g3) : (!t) -> !t
  %s4 = "relax.add"(%x4, %c4) : (!t, !t) -> !t
  %r4 = "relax.relu"(%s4) : (!t) -> !t
  %f4 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m4 = "relax.multiply"(%r4, %f4) : (!t, tensor<f32>) -> !t
  %t4 = "relax.tanh"(%m4) : (!t) -> !t
  %e4 = "relax.exp"(%t4) : (!t) -> !t
  %g4 = "relax.sigmoid"(%e4) : (!t) -> !t
  %x5 = "relax.negative"(%g4) : (!t) -> !t
  %s5 = "relax.add"(%x5, %c5) : (!t, !t) -> !t
  %r5 = "relax.relu"(%s5) : (!t) -> !t
  %f5 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m5 = "relax.multiply"(%r5, %f5) : (!t, tensor<f32>) -> !t
  %t5 = "relax.tanh"(%m5) : (!t) -> !t
  %e5 = "relax.exp"(%t5) : (!t) -> !t
  %g5 = "relax.sigmoid"(%e5) : (!t) -> !t
  %x6 = "relax.negative"(%g5) : (!t) -> !t
  %s6 = "relax.add"(%x6, %c6) : (!t, !t) -> !t
  %r6 = "relax.relu"(%s6) : (!t) -> !t
  %f6 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m6 = "relax.multiply"(%r6, %f6) : (!t, tensor<f32>) -> !t
  %t6 = "relax.tanh"(%m6) : (!t) -> !t
  %e6 = "relax.exp"(%t6) : (!t) -> !t
  %g6 = "relax.sigmoid"(%e6) : (!t) -> !t
  %x7 = "relax.negative"(%g6) : (!t) -> !t
  %s7 = "relax.add"(%x7, %c7) : (!t, !t) -> !t
  %r7 = "relax.relu"(%s7) : (!t) -> !t
  %f7 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m7 = "relax.multiply"(%r7, %f7) : (!t, tensor<f32>) -> !t
  %t7 = "relax.tanh"(%m7) : (!t) -> !t
  %e7 = "relax.exp"(%t7) : (!t) -> !t
  %g7 = "relax.sigmoid"(%e7) : (!t) -> !t
  %x8 = "relax.negative"(%g7) : (!t) -> !t
  %s8 = "relax.add"(%x8, %c8) : (!t, !t) -> !t
  %r8 = "relax.relu"(%s8) : (!t) -> !t
  %f8 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %m8 = "relax.multiply"(%r8, %f8) : (!t, tensor<f32>) -> !t
  %t8 = "relax.tanh"(%m8) : (!t) -> !t
  %e8 = "relax.exp"(%t8) : (!t) -> !t
  %g8 = "relax.sigmoid"(%e8) : (!t) -> !t
  %x9 = "relax.negative"(%g8) : (!t) -> !t
  return %x9, %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : !t, !t, !t, !t, !t, !t, !t, !t, !t, !t
}
