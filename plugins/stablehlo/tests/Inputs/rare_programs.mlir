// Programs of StableHLO whose operations no other test has without JAX; `imported_programs.py` imports them.

func.func @main(%x: tensor<2x6x3xf32>, %s: tensor<6xf32>, %o: tensor<6xf32>, %m: tensor<6xf32>, %v: tensor<6xf32>) -> tensor<2x6x3xf32> {
  %0 = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : (tensor<2x6x3xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x3xf32>
  return %0 : tensor<2x6x3xf32>
}
// -----
func.func @main(%x: tensor<2x6x3xf32>, %s: tensor<3xf32>, %o: tensor<3xf32>) -> (tensor<2x6x3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) {epsilon = 1.0e-3 : f32, feature_index = 2 : i64} : (tensor<2x6x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x6x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x6x3xf32>, tensor<3xf32>, tensor<3xf32>
}
// -----
func.func @main(%x: tensor<5x4xi8>) -> tensor<5xi32> {
  %0 = stablehlo.bitcast_convert %x : (tensor<5x4xi8>) -> tensor<5xi32>
  return %0 : tensor<5xi32>
}
// -----
func.func @main(%x: tensor<5xf32>) -> tensor<5x2xui16> {
  %0 = stablehlo.bitcast_convert %x : (tensor<5xf32>) -> tensor<5x2xui16>
  return %0 : tensor<5x2xui16>
}
// -----
func.func @main(%x: tensor<5x2xui32>) -> tensor<5xf64> {
  %0 = stablehlo.bitcast_convert %x : (tensor<5x2xui32>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}
// -----
func.func @main(%k: tensor<2xui64>) -> (tensor<2xui64>, tensor<5x3xui32>) {
  %0, %1 = stablehlo.rng_bit_generator %k, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5x3xui32>)
  return %0, %1 : tensor<2xui64>, tensor<5x3xui32>
}
// -----
func.func @main(%k: tensor<3xui64>) -> (tensor<3xui64>, tensor<7xui64>) {
  %0, %1 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<7xui64>)
  return %0, %1 : tensor<3xui64>, tensor<7xui64>
}
// -----
func.func @main(%k: tensor<2xui64>) -> (tensor<2xui64>, tensor<6xui16>) {
  %0, %1 = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<6xui16>)
  return %0, %1 : tensor<2xui64>, tensor<6xui16>
}
// -----
func.func @main(%x: tensor<1x8x9xf32>, %u: tensor<1x4x3xf32>) -> tensor<1x8x9xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %u, %c) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 3>, window_strides = array<i64: 1, 2, 3>} : (tensor<1x8x9xf32>, tensor<1x4x3xf32>, tensor<f32>) -> tensor<1x8x9xf32>
  return %0 : tensor<1x8x9xf32>
}
// -----
func.func @main(%x: tensor<1x8x9xf32>, %u: tensor<1x4x3xf32>) -> tensor<1x8x9xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %u, %c) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 1, 3, 4>, window_strides = array<i64: 1, 2, 3>, padding = dense<[[0, 0], [1, 0], [0, 1]]> : tensor<3x2xi64>} : (tensor<1x8x9xf32>, tensor<1x4x3xf32>, tensor<f32>) -> tensor<1x8x9xf32>
  return %0 : tensor<1x8x9xf32>
}
// -----
func.func @main(%x: tensor<3x4xf32>, %p: tensor<f32>) -> tensor<7x5xf32> {
  %l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %h = stablehlo.constant dense<[1, 1]> : tensor<2xi64>
  %i = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %0 = stablehlo.dynamic_pad %x, %p, %l, %h, %i : (tensor<3x4xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<7x5xf32>
  return %0 : tensor<7x5xf32>
}
// -----
func.func @main(%x: tensor<4x4xf32>, %y: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = "stablehlo.triangular_solve"(%x, %y) {left_side = true, lower = false, unit_diagonal = true, transpose_a = #stablehlo<transpose TRANSPOSE>} : (tensor<4x4xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
// -----
func.func @main(%x: tensor<9xf32>) -> (tensor<9xf32>, tensor<9xf32>) {
  %0 = stablehlo.reduce_precision %x, format = e5m10 : tensor<9xf32>
  %1 = stablehlo.reduce_precision %x, format = e8m7 : tensor<9xf32>
  return %0, %1 : tensor<9xf32>, tensor<9xf32>
}
// -----
func.func @main(%i: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }, {
    %1 = stablehlo.exponential %x : tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// -----
func.func @main(%x: tensor<3x4xcomplex<f32>>, %y: tensor<4xcomplex<f32>>) -> (tensor<3x4xcomplex<f32>>, tensor<3xcomplex<f32>>) {
  %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<4xcomplex<f32>>) -> tensor<3x4xcomplex<f32>>
  %1 = stablehlo.multiply %x, %0 : tensor<3x4xcomplex<f32>>
  %c = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
  %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [1] : (tensor<3x4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<3xcomplex<f32>>
  return %1, %2 : tensor<3x4xcomplex<f32>>, tensor<3xcomplex<f32>>
}
// -----
func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = "stablehlo.map"(%x, %x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.multiply %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {dimensions = array<i64: 0, 1>} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
