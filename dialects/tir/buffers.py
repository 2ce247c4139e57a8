"""What the buffer form of prim functions agrees on: scratch memory on the stack, or in a workspace parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirlo.dialects.bindings import ir

WORKSPACE = "tir.workspace"
"""Attribute of a buffer-form prim function: bytes of scratch memory that its last parameter must give."""
STACK_LIMIT = 16 * 1024
"""Scratch buffers up to this many bytes, all together, live on the stack."""
ALIGNMENT = 64


def buffer_type(shape: Sequence[int], element_type: Any) -> Any:
    """The `memref` of a contiguous tensor.

    An empty one, of which no element is ever read, has its 0 in front: upstream's conversion to LLVM loses functions
    with a parameter such as `memref<3x0xf32>`.
    """
    dims = list(shape)
    if 0 in dims[1:]:
        dims = [0] + [1] * (len(dims) - 1)
    return ir.MemRefType.get(dims, element_type)


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
