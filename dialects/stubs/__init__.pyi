"""Types of MLIR's Python bindings, which have none of their own. For type checkers: nothing of this is imported."""
