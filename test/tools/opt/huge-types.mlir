// RUN: mirlo-opt %s --split-input-file --verify-diagnostics --pipeline=nvvm
// RUN: mirlo-opt %s --split-input-file --verify-diagnostics --canonicalize

// What no memory holds is refused where it is read, with its line.

func.func @dim(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor<4611686018427387904x2xf32>: a dim of 4611686018427387904 elements is beyond any memory: use}}
  %0 = tensor.empty() : tensor<4611686018427387904x2xf32>
  return
}

// -----

// expected-error @+1 {{tensor<4294967296x?x4294967296xi8>: a tensor of shape [4294967296, 4294967296] is beyond any memory}}
func.func private @declared(tensor<4294967296x?x4294967296xi8>)

// -----

// expected-error @+1 {{memref<4294967296x4294967296xf32>: a tensor of shape}}
func.func @buffer(%x: memref<4294967296x4294967296xf32>) attributes {tir.prim_func} {
  return
}
