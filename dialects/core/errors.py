"""Errors of operations and dialects."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirlo.dialects.core.dims import Dim


def describe_raised(error: BaseException) -> str:
    """Return what an exception says, and the file and line that raised it."""
    text = f"{type(error).__name__}: {error}{_meant(error)}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} (at {frames[-1].filename}:{frames[-1].lineno})" if frames else text


def _meant(error: BaseException) -> str:
    """Return a hint for an attribute that an object does not have."""
    if not isinstance(error, AttributeError) or error.obj is None or not error.name:
        return ""
    import difflib  # start-up does not need it

    known = [name for name in dir(error.obj) if not name.startswith("_")]
    near = difflib.get_close_matches(error.name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


class DialectError(ValueError):
    """Raised for a dialect that cannot be registered or loaded; names the package that provides it."""


class OpError(ValueError):
    """Raised by `infer` and `check` for an invalid operation, with one sentence that explains why."""


class OpMistake(OpError):
    """An exception that `infer` or `check` of an operation raised by mistake."""


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
