"""Errors of operations whose dims differ, which run time or an equation may decide."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.errors import OpError


class DimsDiffer(OpError):
    """Raised for two dims that must be equal and are not known to be; symbols may still be equal at run time."""

    def __init__(self, text: str, left: Dim, right: Dim) -> None:
        super().__init__(text)
        self.left = left
        self.right = right


class BroadcastDiffers(DimsDiffer):
    """Raised for two dims that must be equal or 1; run time may decide, where the operands are expanded."""

    def __init__(
        self, text: str, left: Dim, right: Dim, axis: int, shapes: Sequence[tuple[Dim, ...]], target: Dim | None = None
    ) -> None:
        super().__init__(text, left, right)
        self.axis = axis
        """The axis, counted from the last one of the operands."""
        self.shapes = shapes
        """The shapes of the operands that broadcast."""
        self.target = target
        """The dim that operands broadcast to, for one-sided broadcasts."""
