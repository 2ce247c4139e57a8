"""Detection of MLIR's bytecode."""

BYTECODE_PREFIX = b"ML\xefR"
"""What bytecode begins with."""
