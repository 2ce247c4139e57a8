// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/generators.py --verify-calls --codegen-external --verify-calls --split-input-file | FileCheck %s

// A module of regions becomes an artifact, and calls become calls by name. The composite's constant is handed by name.
// CHECK-LABEL: module attributes {relax.external_artifacts = {toy = {data = dense<"0x{{.*}}"> : tensor<{{.*}}xui8>, format = "toy", functions = ["toy_0"],
// CHECK-SAME:  metadata = "{\22scale\22: 1.0}", params = ["constant_{{[0-9a-f]+}}"], target = "toy"
// CHECK-NEXT:    func.func @main(
// CHECK-NEXT:      %[[Y:.*]] = "relax.call_dps_packed"(%arg0) {function = "toy.toy_0", {{.*}}} : (tensor<2x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:      return %[[Y]]
// CHECK-NOT:     module
module {
  func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = "relax.call_external"(%x) {callee = @toy::@toy_0, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
  builtin.module @toy attributes {relax.external = "toy"} {
    func.func private @toy_add_relu_0(%x: tensor<2x3xf32>) -> tensor<2x3xf32> attributes {relax.composite = "toy.add_relu", relax.target = "toy"} {
      %c = "relax.constant"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>} : () -> tensor<3xf32>
      %0 = "relax.add"(%x, %c) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      %1 = "relax.relu"(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %1 : tensor<2x3xf32>
    }
    func.func @toy_0(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = func.call @toy_add_relu_0(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }
  }
}

// -----

// Several results, a second module of a target that has an artifact already: its function gets a name of its own.
// CHECK-LABEL: module attributes {relax.external_artifacts = {{.*}}functions = ["toy_0"]{{.*}}toy.1 = {{.*}}functions = ["toy_0_1"]
// CHECK:         %[[A:.*]] = "relax.call_dps_packed"(%arg0) {function = "toy.toy_0"
// CHECK:         %[[B:.*]]:2 = "relax.call_dps_packed"(%[[A]]) {function = "toy.toy_0_1"
// CHECK:         return %[[B]]#0, %[[B]]#1
module attributes {relax.external_artifacts = {toy = {format = "toy", functions = ["toy_0"], params = []}}} {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = "relax.call_dps_packed"(%x) {function = "toy.toy_0", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
    %1:2 = "relax.call_external"(%0) {callee = @toy::@toy_0, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 0, 0, 0>} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    return %1#0, %1#1 : tensor<4xf32>, tensor<4xf32>
  }
  builtin.module @toy attributes {relax.external = "toy"} {
    func.func @toy_0(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      %0 = "relax.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %1 = "relax.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
      return %0, %1 : tensor<4xf32>, tensor<4xf32>
    }
  }
}
