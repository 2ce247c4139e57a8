"""Cutting loops where a condition changes: the edges of padding, the joints of a concatenation."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.index_expr import loop_index
from mirlo.passes.schedule.blocks.space import Space
from mirlo.passes.schedule.words.analysis import instance_conditions
from mirlo.targets.llvm.schedule.cost import MAX_SUBSPACES

_MAX_ITERATIONS = 3


def along(space: Space, axis: int, lanes: int) -> list[Space]:
    """Cut the space along the loop that is vectorized, so that conditions are constant in whole vectors.

    The number of loops stays the same. Loops after `axis` are treated as in `pieces`.
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
    """Cut again: one condition may depend on another."""
    result = [space]
    for _ in range(_MAX_ITERATIONS):
        following = [piece for part in result for piece in cut(part)]
        if not len(result) < len(following) <= MAX_SUBSPACES:
            break
        result = following
    return result


def _cuts(space: Space, axis: int, stop: int) -> set[int]:
    """Return the iterations of a loop at which a condition changes that depends on no other loop before `stop`."""
    cuts: set[int] = set()
    if not isinstance(space.extents[axis], int):
        return cuts
    for instance in space.instances:
        for expression, thresholds in instance_conditions(instance):
            if {a for a in expression.variables() if a < stop} != {axis} or expression.divisions:
                continue
            step = expression.terms[axis]
            rest = expression - loop_index(axis) * step
            if not (rest.is_numeric and isinstance(step, int) and all(isinstance(t, int) for t in thresholds)):
                continue  # the iteration is dynamic
            if not all(isinstance(space.extents[a], int) for a in rest.variables()):
                continue
            for bound in rest.range(space.extents):
                cuts.update(_crossing(bound, step, static_dim(threshold)) for threshold in thresholds)
    return {cut for cut in cuts if 0 < cut < space.extents[axis]}


def _crossing(constant: int, step: int, threshold: int) -> int:
    """Return the first i at which `constant + step · i >= threshold` differs from its value at i = 0."""
    distance = threshold - constant
    return -(-distance // step) if step > 0 else (distance // step) + 1
