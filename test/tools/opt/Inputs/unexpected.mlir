// expected-error @below {{use of undeclared SSA value name}}
func.func @f() { call @g(%a) : (i32) -> () return }
// -----
func.func @f() { call @g(%a) : (i32) -> () return }
