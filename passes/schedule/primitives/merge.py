"""The schedule primitive `merge`: loops that follow one another as one."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.passes.schedule.primitives.loops import require_no_accumulators, require_serial, substitute
from mirlo.passes.schedule.primitives.tree import (
    BlockLeaf,
    BufferAccess,
    Loop,
    ScheduleError,
    leaves_of,
    placed_at,
    reads_of,
    replace,
    set_children,
    without_single,
)

_Accesses = list[tuple[BufferAccess, list[IndexExpr]]]
"""Accesses, and the axes of their blocks."""


def merge(loops: Sequence[Loop]) -> None:
    """Merge loops that follow one another into the first of them."""
    if len(set(map(id, loops))) != len(loops):
        raise ScheduleError(f"merge: expected each loop once, found {', '.join(loop.name for loop in loops)}")
    first, *others = loops
    last = first
    for loop in loops:
        require_serial(loop)
        require_no_accumulators("merge", loop)
    assert first.parent is not None
    siblings = first.parent.body
    for loop in others:
        if loop.parent is not first.parent or siblings.index(loop) != siblings.index(last) + 1:
            raise ScheduleError(f"merge: '{loop.name}' does not follow '{last.name}' in the same loops")
        if loop.extent != first.extent or loop.is_peeled != first.is_peeled:
            raise ScheduleError(
                f"merge: '{loop.name}' has {loop.extent} iterations{' and is peeled' if loop.is_peeled else ''}, "
                f"'{first.name}' has {first.extent}"
            )
        last = loop
    for loop in others:
        _require_same_iteration(first, loop)
        substitute(loop, {loop.name: loop_index(first.name)}, None)
        inside = loop.body
        replace(loop, [])
        set_children(first, [*first.body, *inside])


def _require_same_iteration(first: Loop, loop: Loop) -> None:
    """Require that elements of an earlier loop that a loop accesses are made in the same iteration."""
    writers, names = _written(first), {loop.name: loop_index(first.name)}
    for leaf in leaves_of(loop):
        for access, axes in [*reads_of(leaf), *_results(leaf)]:
            for maker, result, maker_axes in writers.get(id(access.buffer), ()):
                elements = without_single(placed_at(result.at, maker_axes), maker)
                here = [index.replace(names) for index in without_single(placed_at(access.at, axes), leaf)]
                own = [d for d, index in enumerate(elements) if first.name in index.variables()]
                is_same = not access.is_opaque and all(here[d] == elements[d] for d in own)
                if first.name in maker.reduce_loops() or not is_same or not own and first.extent != 1:
                    raise ScheduleError(
                        f"merge: '{leaf.name}' accesses elements of '{result.buffer.name}' that '{maker.name}' makes "
                        f"in another iteration of '{first.name}'"
                    )
    written = {id(access.buffer) for leaf in leaves_of(loop) for access, _ in _results(leaf)}
    for leaf in leaves_of(first):
        for access, _ in reads_of(leaf):
            if id(access.buffer) in written:
                raise ScheduleError(f"merge: '{leaf.name}' reads '{access.buffer.name}' before '{loop.name}' writes it")


def _written(loop: Loop) -> dict[int, list[tuple[BlockLeaf, BufferAccess, list[IndexExpr]]]]:
    """Return what blocks in a loop make, by buffers: the block, the access and its axes."""
    writers: dict[int, list[tuple[BlockLeaf, BufferAccess, list[IndexExpr]]]] = {}
    for leaf in leaves_of(loop):
        for access, axes in _results(leaf):
            writers.setdefault(id(access.buffer), []).append((leaf, access, axes))
    return writers


def _results(leaf: BlockLeaf) -> _Accesses:
    """Return the outputs of a block, and those of its epilogue."""
    results = [(access, leaf.at) for access in leaf.writes]
    for after in leaf.epilogue:
        results += [(access, placed_at(after.at, leaf.at)) for access in after.writes]
    return results
