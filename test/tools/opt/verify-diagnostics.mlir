// RUN: mirlo-opt %s --split-input-file --verify-diagnostics --load-pass-plugin=%S/Inputs/passes_for_tests.py --test-refuse --test-chat='words=at,last'

func.func @add(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{'relax.add' op}}
  %c = "relax.add"(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>
  return %c : tensor<2xf32>
}

// -----

// expected-error@below {{does not like the function 'f'}}
func.func @f() {
  return
}

// -----

func.func @f() { // expected-error {{does not like the function 'f'}}
  return
}

// -----

func.func @f() {
  return
}
// expected-error-re @-3 {{does not like {{.*}} '{{[a-g]}}'}}

// -----

// expected-remark @below {{saw at last}}
func.func @g() {
  return
}
// expected-remark @+2 {{saw}}

func.func @h() {
  return
}

// -----

// expected-note @+3 {{prior use here}}
// expected-error @+4 {{expects different type than prior uses}}
func.func @i(
    %a
    : i32) -> i64 {
  return %a : i64
}
