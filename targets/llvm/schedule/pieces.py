"""Cutting loops where a condition changes: the edges of padding, the joints of a concatenation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.passes.schedule.blocks.linear import EXTREMES, Linear, axis_index
from mirlo.passes.schedule.blocks.space import Place, Space

_MOST = 12
"""More pieces than this are more code than they save."""
_ROUNDS = 3
_THRESHOLDS = {0: (0, 1), 1: (0, 1), 2: (0,), 3: (1,), 4: (1,), 5: (0,)}
"""By predicate of `arith.cmpi`: at which values of left - right it changes."""


def pieces(space: Space, loops: Sequence[int], stop: int) -> list[Space]:
    """The space cut along these loops, so that conditions are decided in each piece where possible.

    A condition that also depends on the loops from `stop` on counts as decided where it is the same for all of them.
    """

    def cut(part: Space) -> list[Space]:
        found = [part]
        for axis in loops:
            bounds = [0, *sorted(_cuts(part, axis, stop)), part.extents[axis]]
            if len(found) * (len(bounds) - 1) <= _MOST:
                found = [p.cut(axis, low, high) for low, high in zip(bounds, bounds[1:], strict=False) for p in found]
        return found

    return _repeated(space, cut)


def along(space: Space, axis: int, lanes: int) -> list[Space]:
    """The space cut along the loop that becomes vectors, so that whole vectors have their conditions decided.

    The loops stay as many as they are. Those after `axis` are treated as in `pieces`.
    """

    def cut(part: Space) -> list[Space]:
        extent = part.extents[axis]
        if not isinstance(extent, int) or extent <= 2 * lanes:
            return [part]
        cuts = set()
        for at in _cuts(part, axis, axis + 1):
            cuts.add(min(-(-at // lanes) * lanes, extent) if at <= extent // 2 else at // lanes * lanes)
        bounds = sorted({0, *cuts, extent})
        return [part.cut(axis, low, high) for low, high in zip(bounds, bounds[1:], strict=False)]

    return _repeated(space, cut)


def _repeated(space: Space, cut: Callable[[Space], list[Space]]) -> list[Space]:
    """Cut again what was cut: one condition may depend on another."""
    found = [space]
    for _ in range(_ROUNDS):
        following = [piece for part in found for piece in cut(part)]
        if not len(found) < len(following) <= _MOST:
            break
        found = following
    return found


def _cuts(space: Space, axis: int, stop: int) -> set[int]:
    """Where along a loop a condition changes that depends on no other loop before `stop`."""
    found: set[int] = set()
    if not isinstance(space.extents[axis], int):
        return found
    for place in space.places:
        for expression, thresholds in _conditions(place):
            if {a for a in expression.axes() if a < stop} != {axis} or expression.divisions:
                continue
            step = expression.terms[axis]
            rest = expression - axis_index(axis) * step
            if not (rest.is_numeric and isinstance(step, int) and all(isinstance(t, int) for t in thresholds)):
                continue  # where it changes is known at run time only
            if not all(isinstance(space.extents[a], int) for a in rest.axes()):
                continue
            for bound in rest.range(space.extents):
                found.update(_crossing(bound, step, threshold) for threshold in thresholds)
    return {cut for cut in found if 0 < cut < space.extents[axis]}


def _crossing(constant: int, step: int, threshold: int) -> int:
    """The first i at which whether `constant + step · i` is at least `threshold` is not as it was at the start."""
    distance = threshold - constant
    return -(-distance // step) if step > 0 else (distance // step) + 1


def _conditions(place: Place) -> list[tuple[Linear, Sequence[Any]]]:
    """Expressions, and the values at which something changes when they are passed."""
    found: list[tuple[Linear, Sequence[Any]]] = []
    for operand in place.needed_inputs:
        found += [(dim, (0, size)) for dim, size in place.outside_tests(operand)]
    for op in place.block.body_ops:
        if op.name == "arith.cmpi" and place.known(op.results[0]) is None:
            difference = place.difference(op)
            if difference is not None:
                found.append((difference, _THRESHOLDS.get(op.attributes["predicate"].value, ())))
        if op.name in EXTREMES and place.linear(op.results[0]) is None:
            difference = place.difference(op)
            if difference is not None:
                found.append((difference, (0,)))
    return found
