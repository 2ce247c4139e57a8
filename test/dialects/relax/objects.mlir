// RUN: mirlo-opt %s --verify-calls | mirlo-opt | FileCheck %s

// Objects of the run time have one type; what they are is said where they come in and go out.

// CHECK-LABEL: func.func @main(
// CHECK-SAME:  !relax.object {relax.kind = "sequence(f32[n])", relax.name = "xs"}
func.func @main(%xs: !relax.object {relax.name = "xs", relax.kind = "sequence(f32[n])"}, %flag: i1) -> (!relax.object {relax.kind = "string"}) {
  // CHECK: "relax.call_packed"(%{{.*}}) {function = "mirlo.sequence.length", {{.*}}} : (!relax.object) -> tensor<i64>
  %0 = "relax.call_packed"(%xs) {function = "mirlo.sequence.length", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (!relax.object) -> tensor<i64>
  // CHECK: scf.if %{{.*}} -> (!relax.object)
  %1 = scf.if %flag -> (!relax.object) {
    // CHECK: options = "{\22strings\22: [\22a\22], \22shape\22: [1]}"
    %2 = "relax.call_packed"() {function = "mirlo.string.constant", options = "{\"strings\": [\"a\"], \"shape\": [1]}", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : () -> !relax.object
    scf.yield %2 : !relax.object
  } else {
    scf.yield %xs : !relax.object
  }
  return %1 : !relax.object
}
