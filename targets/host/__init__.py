"""Functions that run on the host, in the LLVM dialect: what target `llvm` and targets for GPUs share."""
