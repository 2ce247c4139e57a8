"""Buffers as scripts see them, in both forms of prim functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import Expr


class ScriptBuffer(ABC):
    """A buffer that a script may read: a shape and elements."""

    name: str

    @property
    @abstractmethod
    def shape(self) -> tuple[Dim, ...]: ...

    @property
    @abstractmethod
    def dtype(self) -> DType: ...

    @abstractmethod
    def read(self, indices: Sequence[Expr], outside: float | None = None) -> Expr:
        """Load an element; `outside` is the value beyond the edges."""
