"""Buffers of prim functions that are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.index_expr import contiguous_strides
from mirlo.dialects.tir.compute import (
    INDEX,
    Buffer,
    Expr,
    all_of,
    clamp,
    constant,
    lift,
    select,
)
from mirlo.frontends.script.buffers import ScriptBuffer

if TYPE_CHECKING:
    from mirlo.dialects.core.dims import Dim


class MemoryBuffer(ScriptBuffer):
    """A buffer in memory."""

    def __init__(self, name: str, buffer: Buffer, is_input: bool = False, strides: Sequence[int] | None = None):
        self.name = name
        self._strides = strides
        self.buffer = buffer
        self.is_input = is_input

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def strides(self) -> tuple[Dim, ...]:
        """Return the elements between neighbours in each dim."""
        return tuple(self._strides) if self._strides is not None else contiguous_strides(self.shape)

    def read(self, indices: Sequence[Expr], outside: float | None = None) -> Expr:
        if outside is None:
            return self.buffer[tuple(indices)]
        sizes = [lift(size, INDEX) for size in self.shape]
        inside = all_of([c for i, size in zip(indices, sizes, strict=True) for c in (i >= 0, i < size)])
        held_in = tuple(clamp(i, 0, size - 1) for i, size in zip(indices, sizes, strict=True))
        return select(inside, self.buffer[held_in], constant(outside, self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
