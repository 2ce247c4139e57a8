"""Front ends for programs in a dialect of MLIR: one function of operations, regions where these have them."""
