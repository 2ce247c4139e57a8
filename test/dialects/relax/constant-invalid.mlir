// RUN: mirlo-opt %s --split-input-file --verify-diagnostics

func.func @nothing() {
  // expected-error@+1 {{'relax.constant' op needs either 'value', a dense attribute, or 'param', the name of a parameter}}
  %0 = "relax.constant"() : () -> tensor<2xf32>
  return
}

// -----

func.func @both() {
  // expected-error@+1 {{'relax.constant' op needs either 'value', a dense attribute, or 'param', the name of a parameter}}
  %0 = "relax.constant"() {param = "w", value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>
  return
}

// -----

func.func @other_type() {
  // expected-error@+1 {{'relax.constant' op value is tensor<2xf32>, but the result is declared tensor<3xf32>}}
  %0 = "relax.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<3xf32>
  return
}

// -----

func.func @not_dense() {
  // expected-error@+1 {{'relax.constant' op attribute 'value' must be a DenseElementsAttr, got 1.000000e+00 : f32}}
  %0 = "relax.constant"() {value = 1.0 : f32} : () -> tensor<f32>
  return
}

// -----

func.func @symbolic() {
  // expected-error@+1 {{'relax.constant' op result must be a tensor whose dims are numbers, got tensor<?xf32, #relax.dims<["n"]>>}}
  %0 = "relax.constant"() {param = "w"} : () -> tensor<?xf32, #relax.dims<["n"]>>
  return
}

// -----

func.func @no_tensor() {
  // expected-error@+1 {{'relax.constant' op result must be a tensor whose dims are numbers, got f32}}
  %0 = "relax.constant"() {param = "w"} : () -> f32
  return
}
