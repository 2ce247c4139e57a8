"""The schedule primitive `partition`: a loop in parts, one after the other, each of which has blocks of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as changed

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.passes.schedule.primitives.analysis import conditions_of
from mirlo.passes.schedule.primitives.loops import require_no_accumulators, require_serial
from mirlo.passes.schedule.primitives.threads import reduced_threads
from mirlo.passes.schedule.primitives.tree import (
    Accumulation,
    BlockLeaf,
    InitialValues,
    Loop,
    PartRange,
    Root,
    ScheduleError,
    TileStart,
    around,
    extents_of,
    leaves_of,
    loops_of,
    replace,
    set_children,
)
from mirlo.runtime.names import unused_name

MAX_PARTS = 64
"""Most parts of a loop: the code of each is emitted."""


def partition(root: Root, loop: Loop, points: Sequence[int], multiples: Sequence[int]) -> list[Loop]:
    """Replace a loop by several that follow one another, and begin at these iterations.

    With `multiples` the first part ends at the last multiple of the first number, the next one at that of the second.
    """
    require_serial(loop)
    require_no_accumulators("partition", loop)
    for leaf in leaves_of(loop):
        if any(access.is_tile for each in (leaf, *leaf.epilogue) for access in each.reads):
            raise ScheduleError(f"partition: '{leaf.name}' reads a tile of its loops: partition '{loop.name}' before")
        if loop.name in leaf.reduce_loops():
            _require_continuable(leaf, loop)
        if not leaf.is_whole and not isinstance(leaf.form, Accumulation):
            name = leaf.form.reduction.name if isinstance(leaf.form, InitialValues) else leaf.name
            raise ScheduleError(f"partition: '{name}' is decomposed: partition '{loop.name}' before that")
    bounds = _bounds(loop, points, multiples)
    names = {other.name for other in root.loops()}
    blocks = {leaf.name for leaf in root.leaves()}
    parts = [_part(loop, low, high - low, names, blocks, i == 0) for i, (low, high) in enumerate(bounds)]
    _continue_reductions(root, loop, parts)
    replace(loop, [*parts])
    return parts


def _require_continuable(leaf: BlockLeaf, loop: Loop) -> None:
    """Require that a block can continue a reduction that another one begins."""
    if leaf.epilogue:
        raise ScheduleError(
            f"partition: '{leaf.epilogue[0].name}' is computed on the results of '{leaf.name}', which are complete "
            f"after all parts of '{loop.name}', a loop of the reduction: keep its loops apart (reverse_compute_at)"
        )
    if leaf.has_partial_results or reduced_threads(leaf):
        raise ScheduleError(
            f"partition: '{loop.name}' is a loop of the reduction '{leaf.name}', which makes partial results"
        )


def _continue_reductions(root: Root, loop: Loop, parts: list[Loop]) -> None:
    """Make the first part of a reduction initialize its results, and the others continue it."""
    old = leaves_of(loop)
    copies = [dict(zip(map(id, old), leaves_of(part), strict=True)) for part in parts]
    for leaf in old:
        if loop.name in leaf.reduce_loops() and len(parts) > 1:
            begin = copies[0][id(leaf)] if leaf.begin in (None, leaf) else leaf.begin
            for each in copies:
                each[id(leaf)].begin = begin
    others = [leaf for leaf in root.leaves() if leaf not in old]
    for each, leaves in [(copies[0], [*others, *copies[0].values()]), *((each, each.values()) for each in copies[1:])]:
        for leaf in leaves:
            if id(leaf.begin) in each:
                leaf.begin = each[id(leaf.begin)]


def _bounds(loop: Loop, points: Sequence[int], multiples: Sequence[int]) -> list[tuple[Dim, Dim]]:
    """Return where each part begins and ends."""
    if bool(points) == bool(multiples):
        raise ScheduleError(f"partition of '{loop.name}': expected either points or multiples, and not both")
    ends: list[Dim]
    if points:
        in_order = all(low < high for low, high in zip((0, *points), points, strict=False))
        if not in_order or not D.is_certain(lambda: points[-1] < loop.extent):
            raise ScheduleError(
                f"partition of '{loop.name}': expected iterations from 1 to {loop.extent - 1} in ascending order, "
                f"found {list(points)}"
            )
        ends = [*points, loop.extent]
    else:
        if any(a % b for a, b in zip(multiples, multiples[1:], strict=False)) or any(n < 1 for n in multiples):
            raise ScheduleError(
                f"partition of '{loop.name}': expected multiples each of which divides the one before, found "
                f"{list(multiples)}"
            )
        ends = [loop.extent // n * n for n in multiples] + [loop.extent]
    if len(ends) > MAX_PARTS:
        raise ScheduleError(f"partition of '{loop.name}': {len(ends)} parts, expected at most {MAX_PARTS}")
    pairs = list(zip([0, *ends[:-1]], ends, strict=True))
    kept = [(low, high) for low, high in pairs if low != high]
    return kept or pairs[:1]


def _part(loop: Loop, low: Dim, extent: Dim, names: set[str], blocks: set[str], is_first: bool) -> Loop:
    """Return a copy of a loop for the iterations from `low` on; the first one keeps the names of its blocks."""
    inside = [loop, *loops_of(loop)]
    new_names: dict[str, str] = {}
    for each in inside:
        base = each.name if is_first and each is not loop else f"{each.name}_{0 if is_first else 1}"
        new_names[each.name] = base if is_first and each is not loop else unused_name(base, names)
        names.add(new_names[each.name])
    values: dict[str, IndexExpr] = {old: loop_index(new) for old, new in new_names.items()}
    values[loop.name] = loop_index(new_names[loop.name]) + low
    copies: dict[int, BlockLeaf] = {}
    # Parts of a loop around those over which results are in registers have registers of their own.
    held = {id(old): Accumulation(old.is_in_order) for each in inside for old in each.accumulated}
    for leaf in leaves_of(loop):
        name = leaf.name if is_first else unused_name(f"{leaf.name}_1", blocks)
        blocks.add(name)
        copies[id(leaf)] = _leaf(leaf, name, values)
        if isinstance(leaf.form, Accumulation):
            copies[id(leaf)].form = held[id(leaf.form)]
    result = _copy(loop, new_names, copies, values, held)
    result.extent = extent
    result.part = PartRange(low)
    return result


def _leaf(leaf: BlockLeaf, name: str, values: dict[str, IndexExpr]) -> BlockLeaf:
    return changed(
        leaf,
        name=name,
        reads=[changed(access) for access in leaf.reads],
        writes=[changed(access) for access in leaf.writes],
        at=[index.replace(values) for index in leaf.at],
        guards=[(index.replace(values), bound) for index, bound in leaf.guards],
        parent=None,
    )


def _copy(
    loop: Loop,
    names: dict[str, str],
    leaves: dict[int, BlockLeaf],
    values: dict[str, IndexExpr],
    held: dict[int, Accumulation],
) -> Loop:
    form = loop.form
    if isinstance(form, TileStart):
        form = changed(form, tile=form.tile.replace(values))
    result = changed(
        loop, name=names[loop.name], parent=None, nested=None,
        accumulated=tuple(held[id(old)] for old in loop.accumulated), form=form,
    )  # fmt: skip
    inside = [_copy(n, names, leaves, values, held) if isinstance(n, Loop) else leaves[id(n)] for n in loop.body]
    set_children(result, inside)
    return result


def change_points(loop: Loop) -> list[int]:
    """Return the iterations of a loop, other than the first, at which a condition on an index changes.

    Conditions are those of elements beyond edges, and of bodies; they depend on no other loop, or on loops of the
    reduction only, for all of which they must hold.
    """
    points: set[int] = set()
    if not isinstance(loop.extent, int):
        return []
    for leaf in leaves_of(loop):
        reduced = leaf.reduce_loops()
        extents = extents_of(around(leaf))
        for expression, thresholds in conditions_of(leaf):
            points.update(_crossings(expression, thresholds, loop, reduced, extents))
    return sorted(point for point in points if 0 < point < loop.extent)


def _crossings(
    expression: IndexExpr, thresholds: Sequence[Dim], loop: Loop, reduced: set[str], extents: dict[str, Dim]
) -> Iterator[int]:
    others = expression.variables() - {loop.name}
    step = expression.coefficient(loop.name)
    if not others <= reduced or expression.divisions or not isinstance(step, int) or step == 0:
        return
    rest = expression - loop_index(loop.name) * step
    try:
        bounds = rest.range(extents)
    except UndecidedDim:
        return
    for bound in bounds:
        for threshold in thresholds:
            if isinstance(bound, int) and isinstance(threshold, int):
                distance = threshold - bound
                yield -(-distance // step) if step > 0 else distance // step + 1
