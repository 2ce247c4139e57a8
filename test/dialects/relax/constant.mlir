// RUN: mirlo-opt %s | mirlo-opt | FileCheck %s

// Constants: in the IR, and by name.

// CHECK-LABEL: func.func @in_the_ir(
func.func @in_the_ir() -> (tensor<2xf32>, tensor<ui8>, tensor<2x2xi1>) {
  // CHECK: "relax.constant"() {value = dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "relax.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  // CHECK: "relax.constant"() {value = dense<255> : tensor<ui8>} : () -> tensor<ui8>
  %1 = "relax.constant"() {value = dense<255> : tensor<ui8>} : () -> tensor<ui8>
  // CHECK: "relax.constant"() {value = dense<true> : tensor<2x2xi1>} : () -> tensor<2x2xi1>
  %2 = "relax.constant"() {value = dense<true> : tensor<2x2xi1>} : () -> tensor<2x2xi1>
  return %0, %1, %2 : tensor<2xf32>, tensor<ui8>, tensor<2x2xi1>
}

// CHECK-LABEL: func.func @by_name(
func.func @by_name() -> tensor<3x4xbf16> {
  // CHECK: "relax.constant"() {param = "layer1.weight"} : () -> tensor<3x4xbf16>
  %0 = "relax.constant"() {param = "layer1.weight"} : () -> tensor<3x4xbf16>
  return %0 : tensor<3x4xbf16>
}
