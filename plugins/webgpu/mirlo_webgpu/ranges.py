"""Ranges of a program's memory in the buffers of a device, natively and in browsers."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.gpu import CallFrame, StepRange

MIN_BOUND = 16
"""Fewest bytes of a bound range: the size of the widest element."""


def words(size: int) -> int:
    """Return a size in bytes rounded up to a multiple of four, the unit of copies and bindings."""
    return -(-size // 4) * 4


def bound_size(size: int) -> int:
    """Return the size in bytes with which a range is bound."""
    return max(words(size), MIN_BOUND)


def resolve(where: StepRange, frame: CallFrame, constants: Sequence[int], params: int) -> StepRange:
    """Return a range with its offset in the buffer of its space, and its size.

    Inputs and outputs share one buffer, each constant has its own; `constants` are the bytes of the weights, and of the
    constants after them, which are numbered after `params` weights.
    """
    space, number, offset, size = where
    start = 0
    if space == "arena":
        whole = max(frame.arena, 4)
    elif space == "tensor":
        start, whole = frame.regions[number].offset, frame.regions[number].size
    else:
        number += params if space == "constant" else 0
        whole = constants[number]
    return space, number, start + offset, size if size >= 0 else whole - offset
