// RUN: mirlo-opt %s --simplify | FileCheck %s
// RUN: mirlo-opt %s --simplify=explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

// As BERT's exports have it: heads between, keys permuted to [D, T], a factor, an additive mask.
// CHECK-LABEL: func.func @bert(
// CHECK-DAG:     %[[Q:.*]] = "relax.permute"(%arg0) {axes = array<i64: 0, 2, 1, 3>}
// CHECK-DAG:     %[[K:.*]] = "relax.permute"(%arg1) {axes = array<i64: 0, 2, 1, 3>}
// CHECK-DAG:     %[[V:.*]] = "relax.permute"(%arg2) {axes = array<i64: 0, 2, 1, 3>}
// CHECK:         %[[A:.*]] = "relax.attention"(%[[Q]], %[[K]], %[[V]], %arg3) {{.*}}scale = 1.250000e-01
// CHECK-NEXT:    return %[[A]]
func.func @bert(%q: tensor<2x8x3x64xf32>, %k: tensor<2x8x3x64xf32>, %v: tensor<2x8x3x64xf32>,
                %mask: tensor<2x1x1x8xf32>) -> tensor<2x3x8x64xf32> {
  %scale = "relax.constant"() {value = dense<0.125> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.permute"(%q) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x8x3x64xf32>) -> tensor<2x3x8x64xf32>
  %1 = "relax.permute"(%k) {axes = array<i64: 0, 2, 3, 1>} : (tensor<2x8x3x64xf32>) -> tensor<2x3x64x8xf32>
  %2 = "relax.permute"(%v) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x8x3x64xf32>) -> tensor<2x3x8x64xf32>
  %3 = "relax.matmul"(%0, %1) : (tensor<2x3x8x64xf32>, tensor<2x3x64x8xf32>) -> tensor<2x3x8x8xf32>
  %4 = "relax.multiply"(%3, %scale) : (tensor<2x3x8x8xf32>, tensor<f32>) -> tensor<2x3x8x8xf32>
  %5 = "relax.add"(%4, %mask) : (tensor<2x3x8x8xf32>, tensor<2x1x1x8xf32>) -> tensor<2x3x8x8xf32>
  %6 = "relax.softmax"(%5) {axis = -1 : i64} : (tensor<2x3x8x8xf32>) -> tensor<2x3x8x8xf32>
  %7 = "relax.matmul"(%6, %2) : (tensor<2x3x8x8xf32>, tensor<2x3x8x64xf32>) -> tensor<2x3x8x64xf32>
  return %7 : tensor<2x3x8x64xf32>
}

// The factor as a divisor, keys read transposed, no mask.
// CHECK-LABEL: func.func @divided(
// CHECK-NEXT:    %[[A:.*]] = "relax.attention"(%arg0, %arg1, %arg2) {{.*}}scale = 2.500000e-01
// CHECK-NEXT:    return %[[A]]
func.func @divided(%q: tensor<1x2x4x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x16xf32>) -> tensor<1x2x4x16xf32> {
  %root = "relax.constant"() {value = dense<4.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<1x2x4x16xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x4x6xf32>
  %1 = "relax.divide"(%0, %root) : (tensor<1x2x4x6xf32>, tensor<f32>) -> tensor<1x2x4x6xf32>
  %2 = "relax.softmax"(%1) {axis = 3 : i64} : (tensor<1x2x4x6xf32>) -> tensor<1x2x4x6xf32>
  %3 = "relax.matmul"(%2, %v) : (tensor<1x2x4x6xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x4x16xf32>
  return %3 : tensor<1x2x4x16xf32>
}

// PyTorch's scaled_dot_product_attention: half of the factor on each operand, a guard against rows without keys.
// CHECK-LABEL: func.func @guarded(
// CHECK-NEXT:    %[[A:.*]] = "relax.attention"(%arg0, %arg1, %arg2, %arg3) {{.*}}scale = 2.500000e-01
// CHECK-NEXT:    return %[[A]]
func.func @guarded(%q: tensor<1x2x4x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x16xf32>,
                   %mask: tensor<1x1x4x6xf32>) -> tensor<1x2x4x16xf32> {
  %half = "relax.constant"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %zero = "relax.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.multiply"(%q, %half) : (tensor<1x2x4x16xf32>, tensor<f32>) -> tensor<1x2x4x16xf32>
  %1 = "relax.permute"(%k) {axes = array<i64: 0, 1, 3, 2>} : (tensor<1x2x6x16xf32>) -> tensor<1x2x16x6xf32>
  %2 = "relax.multiply"(%1, %half) : (tensor<1x2x16x6xf32>, tensor<f32>) -> tensor<1x2x16x6xf32>
  %3 = "relax.matmul"(%0, %2) : (tensor<1x2x4x16xf32>, tensor<1x2x16x6xf32>) -> tensor<1x2x4x6xf32>
  %4 = "relax.add"(%3, %mask) : (tensor<1x2x4x6xf32>, tensor<1x1x4x6xf32>) -> tensor<1x2x4x6xf32>
  %5 = "relax.softmax"(%4) {axis = -1 : i64} : (tensor<1x2x4x6xf32>) -> tensor<1x2x4x6xf32>
  %6 = "relax.isnan"(%5) : (tensor<1x2x4x6xf32>) -> tensor<1x2x4x6xi1>
  %7 = "relax.where"(%6, %zero, %5) : (tensor<1x2x4x6xi1>, tensor<f32>, tensor<1x2x4x6xf32>) -> tensor<1x2x4x6xf32>
  %8 = "relax.matmul"(%7, %v) : (tensor<1x2x4x6xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x4x16xf32>
  return %8 : tensor<1x2x4x16xf32>
}

// ONNX's function of Attention: zeros where the mask hides all keys of a query.
// CHECK-LABEL: func.func @all_hidden(
// CHECK-NEXT:    %[[A:.*]] = "relax.attention"(%arg0, %arg1, %arg2, %arg3) {{.*}}scale = 1.000000e+00
// CHECK-NEXT:    return %[[A]]
func.func @all_hidden(%q: tensor<1x2x4x16xf16>, %k: tensor<1x2x6x16xf16>, %v: tensor<1x2x6x16xf16>,
                      %mask: tensor<1x1x4x6xf16>) -> tensor<1x2x4x16xf16> {
  %low = "relax.constant"() {value = dense<0xFC00> : tensor<1xf16>} : () -> tensor<1xf16>
  %zero = "relax.constant"() {value = dense<0.0> : tensor<1xf16>} : () -> tensor<1xf16>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<1x2x4x16xf16>, tensor<1x2x6x16xf16>) -> tensor<1x2x4x6xf16>
  %1 = "relax.add"(%0, %mask) : (tensor<1x2x4x6xf16>, tensor<1x1x4x6xf16>) -> tensor<1x2x4x6xf16>
  %2 = "relax.softmax"(%1) {axis = -1 : i64} : (tensor<1x2x4x6xf16>) -> tensor<1x2x4x6xf16>
  %3 = "relax.reduce_max"(%mask) {axes = array<i64: -1>, keepdims = true} : (tensor<1x1x4x6xf16>) -> tensor<1x1x4x1xf16>
  %4 = "relax.equal"(%3, %low) : (tensor<1x1x4x1xf16>, tensor<1xf16>) -> tensor<1x1x4x1xi1>
  %5 = "relax.where"(%4, %zero, %2) : (tensor<1x1x4x1xi1>, tensor<1xf16>, tensor<1x2x4x6xf16>) -> tensor<1x2x4x6xf16>
  %6 = "relax.matmul"(%5, %v) : (tensor<1x2x4x6xf16>, tensor<1x2x6x16xf16>) -> tensor<1x2x4x16xf16>
  return %6 : tensor<1x2x4x16xf16>
}

// Another mask is tested than the one that is added.
// WHY:           attention: the weights are replaced by zeros where another mask than that of the scores hides all keys
// CHECK-LABEL: func.func @others_hidden(
// CHECK-NOT:     "relax.attention"
// CHECK:         return
func.func @others_hidden(%q: tensor<1x2x4x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x16xf32>,
                         %mask: tensor<1x1x4x6xf32>, %other: tensor<1x1x4x6xf32>) -> tensor<1x2x4x16xf32> {
  %low = "relax.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %zero = "relax.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<1x2x4x16xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x4x6xf32>
  %1 = "relax.add"(%0, %mask) : (tensor<1x2x4x6xf32>, tensor<1x1x4x6xf32>) -> tensor<1x2x4x6xf32>
  %2 = "relax.softmax"(%1) {axis = -1 : i64} : (tensor<1x2x4x6xf32>) -> tensor<1x2x4x6xf32>
  %3 = "relax.reduce_max"(%other) {axes = array<i64: -1>, keepdims = true} : (tensor<1x1x4x6xf32>) -> tensor<1x1x4x1xf32>
  %4 = "relax.equal"(%3, %low) : (tensor<1x1x4x1xf32>, tensor<f32>) -> tensor<1x1x4x1xi1>
  %5 = "relax.where"(%4, %zero, %2) : (tensor<1x1x4x1xi1>, tensor<f32>, tensor<1x2x4x6xf32>) -> tensor<1x2x4x6xf32>
  %6 = "relax.matmul"(%5, %v) : (tensor<1x2x4x6xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x4x16xf32>
  return %6 : tensor<1x2x4x16xf32>
}

// A constant mask of the keys after each query is `causal`.
// CHECK-LABEL: func.func @causal(
// CHECK:         "relax.attention"(%arg0, %arg1, %arg2) {causal = true,{{.*}}scale = 1.000000e+00
func.func @causal(%q: tensor<1x2x3x16xf32>, %k: tensor<1x2x3x16xf32>, %v: tensor<1x2x3x16xf32>) -> tensor<1x2x3x16xf32> {
  %mask = "relax.constant"() {value = dense<[[0.0, 0xFF800000, 0xFF800000], [0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0]]> : tensor<3x3xf32>} : () -> tensor<3x3xf32>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<1x2x3x16xf32>, tensor<1x2x3x16xf32>) -> tensor<1x2x3x3xf32>
  %1 = "relax.add"(%mask, %0) : (tensor<3x3xf32>, tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
  %2 = "relax.softmax"(%1) {axis = -1 : i64} : (tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
  %3 = "relax.matmul"(%2, %v) : (tensor<1x2x3x3xf32>, tensor<1x2x3x16xf32>) -> tensor<1x2x3x16xf32>
  return %3 : tensor<1x2x3x16xf32>
}

// Behind a cache: the queries are those of the last keys.
// CHECK-LABEL: func.func @behind_cache(
// CHECK:         "relax.attention"(%arg0, %arg1, %arg2) {at_end = true, causal = true,
func.func @behind_cache(%q: tensor<1x2x2x16xf32>, %k: tensor<1x2x4x16xf32>, %v: tensor<1x2x4x16xf32>) -> tensor<1x2x2x16xf32> {
  %mask = "relax.constant"() {value = dense<[[0.0, 0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0, 0.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<1x2x2x16xf32>, tensor<1x2x4x16xf32>) -> tensor<1x2x2x4xf32>
  %1 = "relax.add"(%mask, %0) : (tensor<2x4xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %2 = "relax.softmax"(%1) {axis = -1 : i64} : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %3 = "relax.matmul"(%2, %v) : (tensor<1x2x2x4xf32>, tensor<1x2x4x16xf32>) -> tensor<1x2x2x16xf32>
  return %3 : tensor<1x2x2x16xf32>
}

// Keys chosen by a condition; heads in the batch dim of a product of rank 3.
// CHECK-LABEL: func.func @chosen(
// CHECK:         %[[M:.*]] = "relax.where"(%arg3,
// CHECK:         "relax.attention"({{.*}}) {{.*}}scale = 1.000000e+00 : f64} : (tensor<1x2x4x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>, tensor<1x1x4x6xf32>)
func.func @chosen(%q: tensor<2x4x16xf32>, %k: tensor<2x6x16xf32>, %v: tensor<2x6x16xf32>, %seen: tensor<1x4x6xi1>) -> tensor<2x4x16xf32> {
  %low = "relax.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<2x4x16xf32>, tensor<2x6x16xf32>) -> tensor<2x4x6xf32>
  %1 = "relax.where"(%seen, %0, %low) : (tensor<1x4x6xi1>, tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32>
  %2 = "relax.softmax"(%1) {axis = -1 : i64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %3 = "relax.matmul"(%2, %v) : (tensor<2x4x6xf32>, tensor<2x6x16xf32>) -> tensor<2x4x16xf32>
  return %3 : tensor<2x4x16xf32>
}

// Keys and values repeated for groups of query heads are read as they are.
// CHECK-LABEL: func.func @grouped(
// CHECK-NEXT:    %[[A:.*]] = "relax.attention"(%arg0, %arg1, %arg2)
// CHECK-NEXT:    return %[[A]]
func.func @grouped(%q: tensor<1x4x5x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x16xf32>) -> tensor<1x4x5x16xf32> {
  %0 = "relax.expand_dims"(%k) {axes = array<i64: 2>} : (tensor<1x2x6x16xf32>) -> tensor<1x2x1x6x16xf32>
  %1 = "relax.expand"(%0) {shape = [1, 2, 2, 6, 16]} : (tensor<1x2x1x6x16xf32>) -> tensor<1x2x2x6x16xf32>
  %2 = "relax.reshape"(%1) {shape = [1, 4, 6, 16]} : (tensor<1x2x2x6x16xf32>) -> tensor<1x4x6x16xf32>
  %3 = "relax.expand_dims"(%v) {axes = array<i64: 2>} : (tensor<1x2x6x16xf32>) -> tensor<1x2x1x6x16xf32>
  %4 = "relax.expand"(%3) {shape = [1, 2, 2, 6, 16]} : (tensor<1x2x1x6x16xf32>) -> tensor<1x2x2x6x16xf32>
  %5 = "relax.reshape"(%4) {shape = [1, 4, 6, 16]} : (tensor<1x2x2x6x16xf32>) -> tensor<1x4x6x16xf32>
  %6 = "relax.permute"(%2) {axes = array<i64: 0, 1, 3, 2>} : (tensor<1x4x6x16xf32>) -> tensor<1x4x16x6xf32>
  %7 = "relax.matmul"(%q, %6) : (tensor<1x4x5x16xf32>, tensor<1x4x16x6xf32>) -> tensor<1x4x5x6xf32>
  %8 = "relax.softmax"(%7) {axis = -1 : i64} : (tensor<1x4x5x6xf32>) -> tensor<1x4x5x6xf32>
  %9 = "relax.matmul"(%8, %5) : (tensor<1x4x5x6xf32>, tensor<1x4x6x16xf32>) -> tensor<1x4x5x16xf32>
  return %9 : tensor<1x4x5x16xf32>
}

// Another axis, weights that are returned as well, a mask before the factor: no attention.
// WHY:           attention: the left operand is not a softmax
// WHY:           attention: the softmax is not along the last axis (axis=2)
// WHY:           attention: the weights are used by something else
// WHY:           attention: a factor stands after something else than the product
// CHECK-LABEL: func.func @declined(
// CHECK-NOT:     "relax.attention"
// CHECK:         return
func.func @declined(%q: tensor<1x2x6x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x16xf32>, %mask: tensor<6x6xf32>)
    -> (tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x6xf32>, tensor<1x2x6x16xf32>) {
  %scale = "relax.constant"() {value = dense<0.3> : tensor<f32>} : () -> tensor<f32>
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x6x6xf32>
  %1 = "relax.softmax"(%0) {axis = 2 : i64} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  %2 = "relax.matmul"(%1, %v) : (tensor<1x2x6x6xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x6x16xf32>
  %3 = "relax.matmul"(%k, %q) {transpose_rhs = true} : (tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x6x6xf32>
  %4 = "relax.softmax"(%3) {axis = -1 : i64} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  %5 = "relax.matmul"(%4, %v) : (tensor<1x2x6x6xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x6x16xf32>
  %6 = "relax.matmul"(%v, %q) {transpose_rhs = true} : (tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x6x6xf32>
  %7 = "relax.add"(%6, %mask) : (tensor<1x2x6x6xf32>, tensor<6x6xf32>) -> tensor<1x2x6x6xf32>
  %8 = "relax.multiply"(%7, %scale) : (tensor<1x2x6x6xf32>, tensor<f32>) -> tensor<1x2x6x6xf32>
  %9 = "relax.softmax"(%8) {axis = -1 : i64} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  %10 = "relax.matmul"(%9, %v) : (tensor<1x2x6x6xf32>, tensor<1x2x6x16xf32>) -> tensor<1x2x6x16xf32>
  return %2, %5, %4, %10 : tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x6xf32>, tensor<1x2x6x16xf32>
}

// The batch of a mask has another name than that of the scores, and either may be 1: query and key are expanded instead.
// CHECK-LABEL: func.func @mask_of_another_batch(
// CHECK-DAG:     %[[Q:.*]] = "relax.expand"(%arg0) {shape = ["N", 2, "s", 8]}
// CHECK-DAG:     %[[K:.*]] = "relax.expand"(%arg1) {shape = ["N", 2, "s", 8]}
// CHECK-DAG:     %[[V:.*]] = "relax.expand"(%arg2) {shape = ["N", 2, "s", 8]}
// CHECK-DAG:     %[[M:.*]] = "relax.expand"(%arg3) {shape = ["N", 1, 1, "s"]}
// CHECK:         "relax.attention"(%[[Q]], %[[K]], %[[V]], %[[M]])
func.func @mask_of_another_batch(%q: tensor<?x2x?x8xf32, #relax.dims<["n", 2, "s", 8]>>, %k: tensor<?x2x?x8xf32, #relax.dims<["n", 2, "s", 8]>>, %v: tensor<?x2x?x8xf32, #relax.dims<["n", 2, "s", 8]>>, %m: tensor<?x1x1x?xf32, #relax.dims<["m", 1, 1, "s"]>>) -> tensor<?x2x?x8xf32, #relax.dims<["N", 2, "s", 8]>> {
  %0 = "relax.matmul"(%q, %k) {transpose_rhs = true} : (tensor<?x2x?x8xf32, #relax.dims<["n", 2, "s", 8]>>, tensor<?x2x?x8xf32, #relax.dims<["n", 2, "s", 8]>>) -> tensor<?x2x?x?xf32, #relax.dims<["n", 2, "s", "s"]>>
  %1 = "relax.expand"(%0) {shape = ["N", 2, "s", "s"]} : (tensor<?x2x?x?xf32, #relax.dims<["n", 2, "s", "s"]>>) -> tensor<?x2x?x?xf32, #relax.dims<["N", 2, "s", "s"]>>
  %2 = "relax.expand"(%m) {shape = ["N", 1, 1, "s"]} : (tensor<?x1x1x?xf32, #relax.dims<["m", 1, 1, "s"]>>) -> tensor<?x1x1x?xf32, #relax.dims<["N", 1, 1, "s"]>>
  %3 = "relax.add"(%1, %2) : (tensor<?x2x?x?xf32, #relax.dims<["N", 2, "s", "s"]>>, tensor<?x1x1x?xf32, #relax.dims<["N", 1, 1, "s"]>>) -> tensor<?x2x?x?xf32, #relax.dims<["N", 2, "s", "s"]>>
  %4 = "relax.softmax"(%3) : (tensor<?x2x?x?xf32, #relax.dims<["N", 2, "s", "s"]>>) -> tensor<?x2x?x?xf32, #relax.dims<["N", 2, "s", "s"]>>
  %5 = "relax.expand"(%v) {shape = ["N", 2, "s", 8]} : (tensor<?x2x?x8xf32, #relax.dims<["n", 2, "s", 8]>>) -> tensor<?x2x?x8xf32, #relax.dims<["N", 2, "s", 8]>>
  %6 = "relax.matmul"(%4, %5) : (tensor<?x2x?x?xf32, #relax.dims<["N", 2, "s", "s"]>>, tensor<?x2x?x8xf32, #relax.dims<["N", 2, "s", 8]>>) -> tensor<?x2x?x8xf32, #relax.dims<["N", 2, "s", 8]>>
  return %6 : tensor<?x2x?x8xf32, #relax.dims<["N", 2, "s", 8]>>
}
