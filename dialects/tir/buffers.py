"""What the buffer form of prim functions agrees on: scratch memory on the stack, or in a workspace parameter."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir

WORKSPACE = "tir.workspace"
"""Attribute of a buffer-form prim function: bytes of scratch memory that its last parameter must give."""
STACK_LIMIT = 16 * 1024
"""Scratch buffers up to this many bytes, all together, live on the stack."""
ALIGNMENT = 64


def element_bytes(mlir_type: Any) -> int:
    """Bytes of one stored element."""
    if isinstance(mlir_type, ir.IndexType):
        return 8
    return max(1, (mlir_type.width + 7) // 8)


def buffer_bytes(memref_type: Any) -> int:
    size = element_bytes(memref_type.element_type)
    for dim in memref_type.shape:
        size *= dim
    return size
