"""The errors of operations and dialects."""

from __future__ import annotations

from typing import Any


class DialectError(ValueError):
    """A dialect that cannot be registered or loaded; names the package that it comes from."""


class OpError(ValueError):
    """An operation that makes no sense, told in one sentence; raised by `infer` and `check`."""


class DimsDiffer(OpError):
    """Two dims that must be equal, and are not known to be: symbols may yet stand for numbers that are."""

    def __init__(self, text: str, left: Any, right: Any) -> None:
        super().__init__(text)
        self.left = left
        self.right = right


class BroadcastDiffers(DimsDiffer):
    """Two dims that must be equal or 1: run time may decide, where the operands are expanded."""

    def __init__(self, text: str, left: Any, right: Any, axis: int, shapes: Any, target: Any = None) -> None:
        super().__init__(text, left, right)
        self.axis = axis
        """Counted from the last one of the operands."""
        self.shapes = shapes
        """Those of the operands that broadcast."""
        self.target = target
        """The dim that operands broadcast to, where it is not for both sides to broadcast."""
