"""Telling MLIR's bytecode from text."""

BYTECODE_PREFIX = b"ML\xefR"
"""What bytecode begins with."""
