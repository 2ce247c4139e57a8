"""The interface of a function over buffers under construction, for control flow and scalars."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.passes.memory.timeline import TimelineBlock


class FunctionBuilder(Protocol):
    """The builder of a planned function (`build.py`)."""

    scalars: dict[ir.Value, ir.Value]
    """Scalars of the function over buffers, by value of the function over tensors."""

    def buffer(self, value: ir.Value) -> ir.Value:
        """Return the buffer of a tensor."""

    def copy(self, source: ir.Value, target: ir.Value, tensor: ir.Type) -> None:
        """Copy all elements of a tensor of this type from one buffer to another."""

    def emit_body(self, body: TimelineBlock) -> None:
        """Emit the operations of a block."""

    def emit_moves(self, number: int) -> None:
        """Emit the copies after the operation with this number."""

    def inside(self) -> AbstractContextManager[None]:
        """Enter a region: buffers created in it are not visible outside."""
