// RUN: mirlo-opt %s --split-input-file --legalize | FileCheck %s

// One block each, broadcasting by its maps.

// CHECK-LABEL: func.func @test_exp
// CHECK:       relax.call_tir{{.*}}callee = @exp
// CHECK:       func.func private @exp
// CHECK:       tir.exp
// CHECK:       domain = [8]{{.*}}name = "exp"
func.func @test_exp(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.exp"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_round
// CHECK:       relax.call_tir{{.*}}callee = @round
// CHECK:       func.func private @round
// CHECK:       tir.roundeven
// CHECK:       domain = [8]{{.*}}name = "round"
func.func @test_round(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.round"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_abs
// CHECK:       relax.call_tir{{.*}}callee = @abs
// CHECK:       func.func private @abs
// CHECK:       tir.abs
// CHECK:       domain = [8]{{.*}}name = "abs"
func.func @test_abs(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.abs"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_negative
// CHECK:       relax.call_tir{{.*}}callee = @negative
// CHECK:       func.func private @negative
// CHECK:       arith.negf
// CHECK:       domain = [8]{{.*}}name = "negative"
func.func @test_negative(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.negative"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_sign
// CHECK:       relax.call_tir{{.*}}callee = @sign
// CHECK:       func.func private @sign
// CHECK:       arith.cmpf une
// CHECK:       arith.cmpf ogt
// CHECK:       arith.cmpf olt
// CHECK:       arith.select
// CHECK:       arith.select
// CHECK:       arith.select
// CHECK:       domain = [8]{{.*}}name = "sign"
func.func @test_sign(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.sign"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_reciprocal
// CHECK:       relax.call_tir{{.*}}callee = @reciprocal
// CHECK:       func.func private @reciprocal
// CHECK:       arith.divf
// CHECK:       domain = [8]{{.*}}name = "reciprocal"
func.func @test_reciprocal(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.reciprocal"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_square
// CHECK:       relax.call_tir{{.*}}callee = @square
// CHECK:       func.func private @square
// CHECK:       arith.mulf
// CHECK:       domain = [8]{{.*}}name = "square"
func.func @test_square(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.square"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_isnan
// CHECK:       relax.call_tir{{.*}}callee = @isnan
// CHECK:       func.func private @isnan
// CHECK:       tir.isnan
// CHECK:       arith.extui
// CHECK:       domain = [8]{{.*}}name = "isnan"
func.func @test_isnan(%arg0: tensor<8xf32>) -> tensor<8xi1> {
  %0 = "relax.isnan"(%arg0) : (tensor<8xf32>) -> tensor<8xi1>
  return %0 : tensor<8xi1>
}

// -----

// CHECK-LABEL: func.func @abs_of_integers
// CHECK:       relax.call_tir{{.*}}callee = @abs
// CHECK:       func.func private @abs
// CHECK:       arith.subi
// CHECK:       arith.maxsi
// CHECK:       domain = [8]{{.*}}name = "abs"
func.func @abs_of_integers(%arg0: tensor<8xi32>) -> tensor<8xi32> {
  %0 = "relax.abs"(%arg0) : (tensor<8xi32>) -> tensor<8xi32>
  return %0 : tensor<8xi32>
}

// -----

// CHECK-LABEL: func.func @test_logical_not
// CHECK:       relax.call_tir{{.*}}callee = @logical_not
// CHECK:       func.func private @logical_not
// CHECK:       arith.cmpi ne
// CHECK:       arith.xori
// CHECK:       arith.extui
// CHECK:       domain = [8]{{.*}}name = "logical_not"
func.func @test_logical_not(%arg0: tensor<8xi1>) -> tensor<8xi1> {
  %0 = "relax.logical_not"(%arg0) : (tensor<8xi1>) -> tensor<8xi1>
  return %0 : tensor<8xi1>
}

// -----

// CHECK-LABEL: func.func @test_bitwise_not
// CHECK:       relax.call_tir{{.*}}callee = @bitwise_not
// CHECK:       func.func private @bitwise_not
// CHECK:       arith.xori
// CHECK:       domain = [8]{{.*}}name = "bitwise_not"
func.func @test_bitwise_not(%arg0: tensor<8xi8>) -> tensor<8xi8> {
  %0 = "relax.bitwise_not"(%arg0) : (tensor<8xi8>) -> tensor<8xi8>
  return %0 : tensor<8xi8>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_add
// CHECK:       relax.call_tir{{.*}}callee = @add
// CHECK:       func.func private @add
// CHECK:       arith.addf
// CHECK:       domain = [2, 8]{{.*}}name = "add"
func.func @test_add(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.add"(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_divide
// CHECK:       relax.call_tir{{.*}}callee = @divide
// CHECK:       func.func private @divide
// CHECK:       arith.divf
// CHECK:       domain = [2, 8]{{.*}}name = "divide"
func.func @test_divide(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.divide"(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_mod
// CHECK:       relax.call_tir{{.*}}callee = @mod
// CHECK:       func.func private @mod
// CHECK:       tir.fmod
// CHECK:       arith.cmpf olt
// CHECK:       arith.cmpf olt
// CHECK:       arith.xori
// CHECK:       arith.addf
// CHECK:       arith.select
// CHECK:       arith.cmpf oeq
// CHECK:       tir.copysign
// CHECK:       arith.select
// CHECK:       domain = [2, 8]{{.*}}name = "mod"
func.func @test_mod(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.mod"(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_maximum
// CHECK:       relax.call_tir{{.*}}callee = @maximum
// CHECK:       func.func private @maximum
// CHECK:       arith.maximumf
// CHECK:       domain = [2, 8]{{.*}}name = "maximum"
func.func @test_maximum(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.maximum"(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_atan2
// CHECK:       relax.call_tir{{.*}}callee = @atan2
// CHECK:       func.func private @atan2
// CHECK:       tir.atan2
// CHECK:       domain = [2, 8]{{.*}}name = "atan2"
func.func @test_atan2(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = "relax.atan2"(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_less
// CHECK:       relax.call_tir{{.*}}callee = @less
// CHECK:       func.func private @less
// CHECK:       arith.cmpf olt
// CHECK:       arith.extui
// CHECK:       domain = [2, 8]{{.*}}name = "less"
func.func @test_less(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>) -> tensor<2x8xi1> {
  %0 = "relax.less"(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xi1>
  return %0 : tensor<2x8xi1>
}

// -----

// CHECK-LABEL: func.func @test_floor_divide
// CHECK:       relax.call_tir{{.*}}callee = @floor_divide
// CHECK:       func.func private @floor_divide
// CHECK:       arith.floordivsi
// CHECK:       domain = [8]{{.*}}name = "floor_divide"
func.func @test_floor_divide(%arg0: tensor<8xi32>, %arg1: tensor<8xi32>) -> tensor<8xi32> {
  %0 = "relax.floor_divide"(%arg0, %arg1) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
  return %0 : tensor<8xi32>
}

// -----

// CHECK-LABEL: func.func @test_mod
// CHECK:       relax.call_tir{{.*}}callee = @mod
// CHECK:       func.func private @mod
// CHECK:       arith.floordivsi
// CHECK:       arith.muli
// CHECK:       arith.subi
// CHECK:       domain = [8]{{.*}}name = "mod"
func.func @test_mod(%arg0: tensor<8xi32>, %arg1: tensor<8xi32>) -> tensor<8xi32> {
  %0 = "relax.mod"(%arg0, %arg1) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
  return %0 : tensor<8xi32>
}

// -----

// CHECK-LABEL: func.func @test_fmod
// CHECK:       relax.call_tir{{.*}}callee = @fmod
// CHECK:       func.func private @fmod
// CHECK:       arith.divsi
// CHECK:       arith.muli
// CHECK:       arith.subi
// CHECK:       domain = [8]{{.*}}name = "fmod"
func.func @test_fmod(%arg0: tensor<8xi32>, %arg1: tensor<8xi32>) -> tensor<8xi32> {
  %0 = "relax.fmod"(%arg0, %arg1) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
  return %0 : tensor<8xi32>
}

// -----

// CHECK-LABEL: func.func @divide_unsigned
// CHECK:       relax.call_tir{{.*}}callee = @divide
// CHECK:       func.func private @divide
// CHECK:       arith.divui
// CHECK:       domain = [8]{{.*}}name = "divide"
func.func @divide_unsigned(%arg0: tensor<8xui8>, %arg1: tensor<8xui8>) -> tensor<8xui8> {
  %0 = "relax.divide"(%arg0, %arg1) : (tensor<8xui8>, tensor<8xui8>) -> tensor<8xui8>
  return %0 : tensor<8xui8>
}

// -----

// CHECK-LABEL: func.func @test_power
// CHECK:       relax.call_tir{{.*}}callee = @power
// CHECK:       func.func private @power
// CHECK:       tir.pow
// CHECK:       domain = [8]{{.*}}name = "power"
func.func @test_power(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.power"(%arg0, %arg1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @test_shift_right
// CHECK:       relax.call_tir{{.*}}callee = @shift_right
// CHECK:       func.func private @shift_right
// CHECK:       arith.cmpi ult
// CHECK:       arith.shrui
// CHECK:       arith.select
// CHECK:       domain = [8]{{.*}}name = "shift_right"
func.func @test_shift_right(%arg0: tensor<8xui8>, %arg1: tensor<8xui8>) -> tensor<8xui8> {
  %0 = "relax.shift_right"(%arg0, %arg1) : (tensor<8xui8>, tensor<8xui8>) -> tensor<8xui8>
  return %0 : tensor<8xui8>
}

// -----

// CHECK:       affine_map<(d0, d1) -> (d0, 0)>
// CHECK:       affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @test_where
// CHECK:       relax.call_tir{{.*}}callee = @where
// CHECK:       func.func private @where
// CHECK:       arith.cmpi ne
// CHECK:       arith.select
// CHECK:       domain = [2, 8]{{.*}}name = "where"
func.func @test_where(%arg0: tensor<2x1xi1>, %arg1: tensor<8xf32>, %arg2: tensor<f32>) -> tensor<2x8xf32> {
  %0 = "relax.where"(%arg0, %arg1, %arg2) : (tensor<2x1xi1>, tensor<8xf32>, tensor<f32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
