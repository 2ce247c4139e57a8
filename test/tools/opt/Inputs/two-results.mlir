func.func @f() -> (i32, i32) {
  return
}
