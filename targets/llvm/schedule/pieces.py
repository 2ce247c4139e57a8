"""Cutting loops where a condition changes: the edges of padding, the joints of a concatenation."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.targets.llvm.schedule.linear import Linear, axis_index
from mirlo.targets.llvm.schedule.space import Place, Space

_MOST = 12
"""More pieces than this are more code than they save."""
_THRESHOLDS = {0: (0, 1), 1: (0, 1), 2: (0,), 3: (1,), 4: (1,), 5: (0,)}
"""By predicate of `arith.cmpi`: at which values of left - right it changes."""


def pieces(space: Space, loops: Sequence[int], stop: int) -> list[Space]:
    """The space cut along these loops, so that conditions are decided in each piece where possible.

    A condition that also depends on the loops from `stop` on counts as decided where it is the same for all of them.
    """
    found = [space]
    for axis in loops:
        cuts = sorted(_cuts(space, axis, stop))
        if not cuts or len(found) * (len(cuts) + 1) > _MOST:
            continue
        bounds = [0, *cuts, space.extents[axis]]
        found = [piece.cut(axis, low, high) for low, high in zip(bounds, bounds[1:], strict=False) for piece in found]
    return found


def along(space: Space, axis: int, lanes: int) -> list[Space]:
    """The space cut along the loop that becomes vectors, so that whole vectors have their conditions decided.

    The loops stay as many as they are. Those after `axis` are treated as in `pieces`.
    """
    extent = space.extents[axis]
    cuts = set()
    for cut in _cuts(space, axis, axis + 1):
        aligned = -(-cut // lanes) * lanes if cut <= extent // 2 else cut // lanes * lanes
        cuts.add(min(aligned, extent))
    if len(cuts) + 1 > _MOST or extent <= 2 * lanes:
        return [space]
    bounds = sorted({0, *cuts, extent})
    return [space.cut(axis, low, high) for low, high in zip(bounds, bounds[1:], strict=False)]


def _cuts(space: Space, axis: int, stop: int) -> set[int]:
    """Where along a loop a condition changes that depends on no other loop before `stop`."""
    found: set[int] = set()
    for place in space.places:
        for expression, thresholds in _conditions(place):
            if {a for a in expression.axes() if a < stop} != {axis} or expression.divisions:
                continue
            step = expression.terms[axis]
            for bound in (expression - axis_index(axis) * step).range(space.extents):
                found.update(_crossing(bound, step, threshold) for threshold in thresholds)
    return {cut for cut in found if 0 < cut < space.extents[axis]}


def _crossing(constant: int, step: int, threshold: int) -> int:
    """The first i at which whether `constant + step · i` is at least `threshold` is not as it was at the start."""
    distance = threshold - constant
    return -(-distance // step) if step > 0 else (distance // step) + 1


def _conditions(place: Place) -> list[tuple[Linear, Sequence[int]]]:
    """Expressions, and the values at which something changes when they are passed."""
    found: list[tuple[Linear, Sequence[int]]] = []
    for operand in place.needed_inputs:
        found += [(dim, (0, size)) for dim, size in place.outside_tests(operand)]
    for op in place.block.body_ops:
        if op.name == "arith.cmpi" and place.known(op.results[0]) is None:
            difference = place.difference(op)
            if difference is not None:
                found.append((difference, _THRESHOLDS.get(op.attributes["predicate"].value, ())))
    return found
