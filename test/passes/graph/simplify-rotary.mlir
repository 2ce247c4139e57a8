// RUN: mirlo-opt %s --simplify | FileCheck %s
// RUN: mirlo-opt %s --simplify=explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

// As LLaMA's exports have it: the angles twice next to each other, cos and sin of them for all heads.
// CHECK-LABEL: func.func @llama(
// CHECK:         %[[R:.*]] = "relax.rotary_embedding"(%arg0, %{{.*}}, %{{.*}}) : (tensor<1x4x8x16xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>) -> tensor<1x4x8x16xf32>
// CHECK-NEXT:    return %[[R]]
func.func @llama(%x: tensor<1x4x8x16xf32>, %angles: tensor<1x8x8xf32>) -> tensor<1x4x8x16xf32> {
  %both = "relax.concat"(%angles, %angles) {axis = -1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x16xf32>
  %c = "relax.cos"(%both) : (tensor<1x8x16xf32>) -> tensor<1x8x16xf32>
  %s = "relax.sin"(%both) : (tensor<1x8x16xf32>) -> tensor<1x8x16xf32>
  %cos = "relax.expand_dims"(%c) {axes = array<i64: 1>} : (tensor<1x8x16xf32>) -> tensor<1x1x8x16xf32>
  %sin = "relax.expand_dims"(%s) {axes = array<i64: 1>} : (tensor<1x8x16xf32>) -> tensor<1x1x8x16xf32>
  %0 = "relax.multiply"(%x, %cos) : (tensor<1x4x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x4x8x16xf32>
  %1 = "relax.strided_slice"(%x) {axes = array<i64: 3>, begin = array<i64: 0>, end = array<i64: 8>, strides = array<i64: 1>} : (tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.strided_slice"(%x) {axes = array<i64: 3>, begin = array<i64: 8>, end = array<i64: 9223372036854775807>, strides = array<i64: 1>} : (tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %3 = "relax.negative"(%2) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %4 = "relax.concat"(%3, %1) {axis = -1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x16xf32>
  %5 = "relax.multiply"(%4, %sin) : (tensor<1x4x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x4x8x16xf32>
  %6 = "relax.add"(%0, %5) : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %6 : tensor<1x4x8x16xf32>
}

// Tables of which nothing is known, and halves the other way round.
// WHY:           rotary_embedding: the halves of the tables are not known to be equal
// WHY:           rotary_embedding: no term is a product with the rotated halves of a tensor
// CHECK-LABEL: func.func @declined(
// CHECK-NOT:     "relax.rotary_embedding"
// CHECK:         return
func.func @declined(%x: tensor<1x4x8x16xf32>, %cos: tensor<1x1x8x16xf32>, %sin: tensor<1x1x8x16xf32>, %a: tensor<1x1x8x8xf32>)
    -> (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) {
  %0 = "relax.multiply"(%x, %cos) : (tensor<1x4x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x4x8x16xf32>
  %1 = "relax.strided_slice"(%x) {axes = array<i64: 3>, begin = array<i64: 0>, end = array<i64: 8>, strides = array<i64: 1>} : (tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = "relax.strided_slice"(%x) {axes = array<i64: 3>, begin = array<i64: 8>, end = array<i64: 16>, strides = array<i64: 1>} : (tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %3 = "relax.negative"(%2) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %4 = "relax.concat"(%3, %1) {axis = -1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x16xf32>
  %5 = "relax.multiply"(%4, %sin) : (tensor<1x4x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x4x8x16xf32>
  %6 = "relax.add"(%0, %5) : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  %t = "relax.concat"(%a, %a) {axis = -1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>) -> tensor<1x1x8x16xf32>
  %7 = "relax.negative"(%1) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %8 = "relax.concat"(%7, %2) {axis = -1 : i64, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x16xf32>
  %9 = "relax.multiply"(%8, %t) : (tensor<1x4x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x4x8x16xf32>
  %10 = "relax.multiply"(%x, %t) : (tensor<1x4x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x4x8x16xf32>
  %11 = "relax.add"(%10, %9) : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %6, %11 : tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>
}
