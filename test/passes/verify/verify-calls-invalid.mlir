// RUN: mirlo-opt %s --verify-calls --split-input-file --verify-diagnostics

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>, %x1: tensor<8xi1>) {
  // expected-error@+1 {{'relax.call_tir' op calls '@kernl', which does not exist; did you mean '@kernel'?}}
  %r = "relax.call_tir"(%x0, %x1) {callee = @kernl, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>, tensor<8xi1>) -> tensor<8xf32>
  return
}

// -----

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_tir' op calls '@kernel', which does not exist}}
  %r = "relax.call_tir"(%x0) {callee = @kernel, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @graph(tensor<8xf32>) -> tensor<8xf32>

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_tir' op calls '@graph', which is not a prim function: a 'func.func' with the attribute 'tir.prim_func'}}
  %r = "relax.call_tir"(%x0) {callee = @graph, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

module @npu {
  func.func private @part(tensor<8xf32>) -> tensor<8xf32>
}

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_tir' op calls '@npu', which is not a prim function: a 'func.func' with the attribute 'tir.prim_func'}}
  %r = "relax.call_tir"(%x0) {callee = @npu, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_tir' op has 1 operands, but '@kernel' has 2}}
  %r = "relax.call_tir"(%x0) {callee = @kernel, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>, %x1: tensor<8xi1>) {
  // expected-error@+1 {{'relax.call_tir' op has 2 results, but '@kernel' has 1}}
  %r:2 = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 0, 0, 0>} : (tensor<8xf32>, tensor<8xi1>) -> (tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>, %x1: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_tir' op operand #1 is tensor<8xf32>, but '@kernel' declares tensor<8xi8>}}
  %r = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<4xf32>, %x1: tensor<8xi1>) {
  // expected-error@+1 {{'relax.call_tir' op operand #0 is tensor<4xf32>, but '@kernel' declares tensor<8xf32>}}
  %r = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>, tensor<8xi1>) -> tensor<8xf32>
  return
}

// -----

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>, %x1: tensor<8xi1>) {
  // expected-error@+1 {{'relax.call_tir' op result #0 is tensor<8x1xf32>, but '@kernel' declares tensor<8xf32>}}
  %r = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>, tensor<8xi1>) -> tensor<8x1xf32>
  return
}

// -----

func.func private @kernel(tensor<8xf32>, tensor<8xi8>) -> tensor<8xf32> attributes {tir.prim_func}

func.func @main(%x0: tensor<?xf32, #relax.dims<["n"]>>, %x1: tensor<8xi1>) {
  // expected-error@+1 {{'relax.call_tir' op operand #0 is tensor<?xf32, #relax.dims<["n"]>>, but '@kernel' declares tensor<8xf32>}}
  %r = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<?xf32, #relax.dims<["n"]>>, tensor<8xi1>) -> tensor<8xf32>
  return
}

// -----

func.func private @kernel(memref<8xf32>, memref<8xi8>, memref<8xf32>) attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_tir' op has 1 operands, but '@kernel' has 2}}
  %r = "relax.call_tir"(%x0) {callee = @kernel, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @kernel(memref<8xf32>, memref<8xi8>, memref<8xf32>) attributes {tir.prim_func}

func.func @main(%x0: tensor<8xf32>, %x1: tensor<8xi1>) {
  // expected-error@+1 {{'relax.call_tir' op result #0 is tensor<8xi32>, but '@kernel' declares memref<8xf32>}}
  %r = "relax.call_tir"(%x0, %x1) {callee = @kernel, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>, tensor<8xi1>) -> tensor<8xi32>
  return
}

// -----

module @npu {
  func.func private @part(tensor<8xf32>) -> tensor<8xf32>
}

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_external' op calls '@part': expected a function of a module, '@module::@function'}}
  %r = "relax.call_external"(%x0) {callee = @part, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

module @npu {
  func.func private @part(tensor<8xf32>) -> tensor<8xf32>
}

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_external' op calls a function of the module '@np', which does not exist; did you mean '@npu'?}}
  %r = "relax.call_external"(%x0) {callee = @np::@part, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

module @npu {
  func.func private @part(tensor<8xf32>) -> tensor<8xf32>
}

func.func @main(%x0: tensor<8xf32>) {
  // expected-error@+1 {{'relax.call_external' op calls '@parts' of the module '@npu', which does not exist; did you mean '@part'?}}
  %r = "relax.call_external"(%x0) {callee = @npu::@parts, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

module @npu {
  func.func private @part(tensor<8xf32>) -> tensor<8xf32>
}

func.func @main(%x0: tensor<8xui8>) {
  // expected-error@+1 {{'relax.call_external' op operand #0 is tensor<8xui8>, but '@part' declares tensor<8xf32>}}
  %r = "relax.call_external"(%x0) {callee = @npu::@part, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8xui8>) -> tensor<8xf32>
  return
}

// -----

// expected-error@+1 {{parameter #0 of prim function '@kernel' must be a ranked tensor or a buffer (memref), got f32}}
func.func private @kernel(f32) attributes {tir.prim_func}

// -----

// expected-error@+1 {{parameter #0 of prim function '@kernel' must have an element type that memory holds (bf16, f16, f32, f64, i16, i32, i64, i8), got tensor<8xi1>}}
func.func private @kernel(tensor<8xi1>) -> tensor<8xf32> attributes {tir.prim_func}

// -----

// expected-error@+1 {{result #0 of prim function '@kernel' must have an element type that memory holds (bf16, f16, f32, f64, i16, i32, i64, i8), got tensor<8xui8>}}
func.func private @kernel(tensor<8xf32>) -> tensor<8xui8> attributes {tir.prim_func}

// -----

// expected-error@+1 {{prim function '@kernel' must take and return tensors, or take buffers and return nothing, got (tensor<8xf32>, memref<8xf32>) -> ()}}
func.func private @kernel(tensor<8xf32>, memref<8xf32>) attributes {tir.prim_func}

// -----

// expected-error@+1 {{prim function '@kernel' must take and return tensors, or take buffers and return nothing, got (memref<8xf32>) -> memref<8xf32>}}
func.func private @kernel(memref<8xf32>) -> memref<8xf32> attributes {tir.prim_func}

// -----

// expected-error@+1 {{attribute 'tir.prim_func' of function '@kernel' must be a unit attribute, got 1 : i64}}
func.func private @kernel(memref<8xf32>) attributes {tir.prim_func = 1}

// -----

// expected-error@+1 {{the last parameter of function '@kernel' must be its workspace, memref<128xi8>, got memref<64xi8>}}
func.func private @kernel(memref<8xf32>, memref<64xi8>) attributes {tir.prim_func, tir.workspace = 128}

// -----

// expected-error@+1 {{attribute 'tir.workspace' of function '@kernel' must be a number of bytes, got -1 : i64}}
func.func private @kernel(memref<8xf32>) attributes {tir.prim_func, tir.workspace = -1}

// -----

// expected-error@+1 {{function '@kernel' has 'tir.workspace', but is not a prim function}}
func.func private @kernel(tensor<8xf32>) attributes {tir.workspace = 64}

// -----

func.func private @kernel(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tir.prim_func} {
  // expected-error@+1 {{'relax.exp' is an operator of the graph and cannot be in prim function '@kernel'}}
  %0 = "relax.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// expected-error@+1 {{function '@f' cannot have the attribute 'relax.primitve'; did you mean 'relax.primitive'?}}
func.func private @f() attributes {relax.primitve}

// -----

// expected-error@+1 {{function '@f' cannot have the attribute 'relax.name'; it may have 'relax.entry', 'relax.inputs', }}
func.func private @f() attributes {relax.name = "f"}

// -----

// expected-error@+1 {{attribute 'relax.inputs' of function '@f' must be a number that is not negative, got "x"}}
func.func private @f() attributes {relax.inputs = "x"}

// -----

// expected-error@+1 {{attribute 'relax.name' of argument #0 of function '@f' must be a string, got 1 : i64}}
func.func private @f(f32 {relax.name = 1})

// -----

// expected-error@+1 {{argument #1 of function '@f' cannot have the attribute 'relax.shape'; it may have 'relax.name', }}
func.func private @f(f32, f32 {relax.shape = 1})

// -----

// expected-error@+1 {{result #0 of function '@f' cannot have the attribute 'relax.param'; it may have 'relax.name'}}
func.func private @f() -> (f32 {relax.param = "w"})

// -----

// expected-error@+1 {{two arguments of function '@f' have the name 'x'}}
func.func private @f(f32 {relax.name = "x"}, f32 {relax.name = "x"})

// -----

// expected-error@+1 {{attribute 'relax.external' of module '@m' must be a string, got 1 : i64}}
module @m attributes {relax.external = 1} {}

// -----

module @inner {
  // expected-error@+1 {{attribute 'relax.primitive' of function '@f' must be a unit attribute, got 1 : i64}}
  func.func private @f() attributes {relax.primitive = 1}
  // expected-error@+1 {{attribute 'relax.primitive' of function '@g' must be a unit attribute, got 2 : i64}}
  func.func private @g() attributes {relax.primitive = 2}
}
