module {
  func.func @f() -> (i32, i32) {
    %a = arith.constant 1 : i32
    %b = arith.constant 1 : i32
    return %a, %b : i32, i32
  }
}

{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(func.func(cse,canonicalize{  max-iterations=10 top-down=true}))",
      disable_threading: true,
      verify_each: true
    }
  }
#-}
