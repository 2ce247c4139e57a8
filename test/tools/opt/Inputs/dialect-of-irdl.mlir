func.func @f() -> i32 {
  %a = "toy.one"() : () -> i32
  return %a : i32
}
