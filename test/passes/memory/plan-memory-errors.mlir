// RUN: mirlo-opt %s --plan-memory --split-input-file --verify-diagnostics

func.func @left(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'relax.exp' is left in '@left': run legalize before plan-memory}}
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @dynamic(%x: tensor<4xf32>) -> tensor<?xf32, #relax.dims<["n"]>> {
  // expected-error @below {{'relax.call_tir' makes tensor<?xf32, #relax.dims<["n"]>>, whose size is not known}}
  %0 = "relax.call_tir"(%x) {callee = @copy, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}

// -----

func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{there is no function '@copi'; did you mean '@copy'?}}
  %0 = "relax.call_tir"(%x) {callee = @copi, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @copy(%x: memref<4xf32>, %y: memref<4xf32>) attributes {tir.prim_func} {
  memref.copy %x, %y : memref<4xf32> to memref<4xf32>
  return
}

// -----

func.func @unscheduled(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'@copy' is not a scheduled prim function: run schedule before plan-memory}}
  %0 = "relax.call_tir"(%x) {callee = @copy, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @copy(%x: tensor<4xf32>) -> tensor<4xf32> attributes {tir.prim_func} {
  return %x : tensor<4xf32>
}

// -----

func.func @region(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'scf.execute_region' is left in '@region'}}
  %0 = scf.execute_region -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{'input_0' of '@scalar' is i1; compiled functions take and give tensors}}
func.func @scalar(%c: i1) {
  return
}

// -----

// expected-error @below {{'x' of '@input' is tensor<?xf32>, of which a dim is not known: give it a name or a number}}
func.func @input(%x: tensor<?xf32> {relax.name = "x"}) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

func.func @left_inside(%x: tensor<4xf32>, %c: tensor<i1>) -> tensor<4xf32> {
  %flag = tensor.extract %c[] : tensor<i1>
  %0 = scf.if %flag -> tensor<4xf32> {
    // expected-error @below {{'relax.exp' is left in '@left_inside': run legalize before plan-memory}}
    %1 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{'output_0' of '@gives_scalar' is i1; compiled functions take and give tensors}}
func.func @gives_scalar(%c: tensor<i1>) -> i1 {
  %flag = tensor.extract %c[] : tensor<i1>
  return %flag : i1
}

// -----

func.func @unsigned(%x: tensor<ui8>) -> tensor<ui8> {
  // expected-error @below {{'tensor.extract' gives ui8, which scalars of compiled functions cannot be}}
  %flag = tensor.extract %x[] : tensor<ui8>
  return %x : tensor<ui8>
}

// -----

func.func @given_away(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'relax.call_external' is left in '@given_away': run codegen-external or inline-external before plan-memory}}
  %0 = "relax.call_external"(%x) {callee = @t::@t_0, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
builtin.module @t attributes {relax.external = "t"} {
  func.func public @t_0(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// A tensor without dims in a loop: nothing names its sizes.
func.func @unmatched(%x: tensor<4xf32>, %go: tensor<i1>) -> tensor<4xf32> {
  %start = "relax.erase_dims"(%x) {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<?xf32>
  // expected-error @-1 {{'relax.erase_dims' makes f32[?]: no symbol is bound to its sizes}}
  return %x : tensor<4xf32>
}

// -----

// Two tensors without dims change places: their sizes are known to no one.
func.func @swapped(%x: tensor<4xf32>, %go: tensor<i1>) -> tensor<?xf32, #relax.dims<["n"]>> {
  %start = "relax.erase_dims"(%x) {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<?xf32>
  %all:2 = scf.while (%v = %start, %w = %start) : (tensor<?xf32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
    %more = tensor.extract %go[] : tensor<i1>
    scf.condition(%more) %v, %w : tensor<?xf32>, tensor<?xf32>
  } do {
  // expected-error @below {{is passed on: name its dims with 'relax.match_dims' first}}
  ^bb0(%a: tensor<?xf32>, %b: tensor<?xf32>):
    scf.yield %b, %a : tensor<?xf32>, tensor<?xf32>
  }
  %0 = "relax.match_dims"(%all#0) {symbols = ["n"]} : (tensor<?xf32>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %0 : tensor<?xf32, #relax.dims<["n"]>>
}
