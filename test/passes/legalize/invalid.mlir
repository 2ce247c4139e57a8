// RUN: not mirlo-opt %s --split-input-file --legalize 2>&1 | FileCheck %s
// RUN: mirlo-opt %s --split-input-file --legalize='partial=true' | FileCheck %s --check-prefix=PARTIAL

// What no rule takes is an error that names the operator, its place in the model, and the reason of each rule.

// CHECK:      1 operator(s) cannot be legalized for target 'llvm':
// CHECK-NEXT:   relax.resize, {{.*}}:8
// CHECK-NEXT:     resize [default]: an empty tensor has nothing to interpolate (shape=(0, 2))
// CHECK-NEXT:     dynamic_resize [default]: an empty tensor has nothing to interpolate (shape=(0, 2))
// PARTIAL: relax.resize
func.func @nothing_to_interpolate(%x: tensor<0x2xf32>) -> tensor<0x4xf32> {
  %0 = "relax.resize"(%x) {shape = [0, 4]} : (tensor<0x2xf32>) -> tensor<0x4xf32>
  return %0 : tensor<0x4xf32>
}

// -----

// CHECK:      1 operator(s) cannot be legalized for target 'llvm':
// CHECK-NEXT:   relax.relu, {{.*}}:8
// CHECK-NEXT:     each_element [default]: needs dims that are numbers or have a name: declare the shape (type=f32[?])
// PARTIAL: relax.relu
func.func @dims_that_are_not_numbers(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = "relax.relu"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
