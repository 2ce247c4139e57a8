"""Prim functions with symbols, as front ends, legalization and schedules see what users write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType


class PrimTemplate(Protocol):
    """A prim function with symbols (`@mirlo.prim_func`), specialized for the types of each use."""

    @property
    def name(self) -> str: ...

    def specialize(
        self,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType] | None,
        name: str,
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[ir.OpView, list[TensorType]]:
        """Return the `func.func` for these types and attributes, and the types of its outputs."""
