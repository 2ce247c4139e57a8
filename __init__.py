"""Mirlo: a machine-learning compiler built on MLIR, in Python from the graph to the kernel."""
