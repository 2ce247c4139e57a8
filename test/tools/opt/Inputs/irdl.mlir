irdl.dialect @toy {
  irdl.operation @one {
    %0 = irdl.is i32
    irdl.results(x: %0)
  }
}
