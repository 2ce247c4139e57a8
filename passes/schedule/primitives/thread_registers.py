"""Elements that stay in registers of a thread of a GPU: it computes them, and reads them in later loops.

A thread runs loops over its elements that are unrolled or vectorized as straight code. An element that one of them
computes is in a register in those after it, in the same iteration of the loops around them, if these have the same
iterations.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.passes.schedule.primitives.loops import MAX_UNROLL
from mirlo.passes.schedule.primitives.threads import bound_loops
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    UNROLLED,
    VECTORIZED,
    Accumulation,
    BlockLeaf,
    BufferAccess,
    Loop,
    LoopIntrinsic,
    TileStart,
    Transposition,
    around,
    leaves_of,
    register_loop,
    without_single,
)

_ELEMENT = "thread_element_{}"
"""The name of a loop over elements of a thread, by its position among them."""


def keep_in_thread(
    writes: Sequence[tuple[BlockLeaf, BufferAccess]], reads: Sequence[tuple[BlockLeaf, BufferAccess]]
) -> None:
    """Replace the reads of a buffer by registers of a thread where possible."""
    if len(writes) != 1:
        return
    ((leaf, write),) = writes
    for reader, access in reads:
        if reader is leaf or reader.rule or access.is_opaque or access.outside is not None or access.is_tile:
            continue
        common = _common(leaf, reader)
        if common and _is_before(leaf, reader, len(common)) and _is_made_for(leaf, reader, len(common)):
            pairs = ((leaf, write), (reader, access))
            own, theirs = (_elements_of(each, used, len(common)) for each, used in pairs)
            if _place(leaf, write, own) == _place(reader, access, theirs) and _have_same_extents(own, theirs):
                shared = tuple(loop.name for loop in _elements_of(leaf, write, 0) if loop in common)
                access.register, access.register_loops = write, (*shared, *(loop.name for loop in theirs))
                write.register_loops = (*shared, *(loop.name for loop in own))


def _common(leaf: BlockLeaf, other: BlockLeaf) -> list[Loop]:
    """Return the loops around both blocks."""
    pairs = zip(around(leaf), around(other), strict=False)
    return [loop for loop, _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs)]


def _is_before(leaf: BlockLeaf, reader: BlockLeaf, depth: int) -> bool:
    """Return whether a block comes before another one, in loops of which both are in the first ones."""
    inside = [
        next(child for child in around(leaf)[depth - 1].body if each in leaves_of(child)) for each in (leaf, reader)
    ]
    siblings = around(leaf)[depth - 1].body
    return siblings.index(inside[0]) < siblings.index(inside[1])


def _elements_of(leaf: BlockLeaf, access: BufferAccess, depth: int) -> list[Loop]:
    """Return the loops over elements of a thread that an access depends on, further in than the first ones."""
    moved = {name for index in leaf.place(access) for name in index.variables()}
    return [loop for loop in around(leaf)[depth:] if _is_element(loop) and loop.name in moved]


def _is_element(loop: Loop) -> bool:
    """Return whether each iteration of a loop is emitted by itself."""
    return loop.kind in (UNROLLED, VECTORIZED) and loop.extent != 1


def _is_made_for(leaf: BlockLeaf, reader: BlockLeaf, depth: int) -> bool:
    """Return whether a block computes its elements in straight-line code, whose values another block can use."""
    inside = around(leaf)[depth:]
    if isinstance(leaf.form, Accumulation):
        region = register_loop(leaf)
        if region not in inside:
            return False
        reduced = leaf.reduce_loops()
        guards = [index for index, _ in leaf.guards if not index.variables() & reduced]
        inside = [loop for loop in inside if loop is region or loop.name not in reduced]
    elif leaf.is_reduction:
        return False
    else:
        guards = [index for index, _ in leaf.guards]
    if guards and not leaf.is_clamped and not _have_same_guards(leaf, reader):
        return False
    return all(map(_is_straight, inside)) and _are_of_all_threads(leaf, reader)


def _are_of_all_threads(leaf: BlockLeaf, reader: BlockLeaf) -> bool:
    """Return whether two blocks are in the same loops over blocks and threads, all of those that their kernel has."""
    own, others = ([loop for loop in around(each) if loop.kind == BOUND] for each in (leaf, reader))
    axes = {loop.thread for loop in bound_loops(around(leaf)[0]) if loop.extent != 1}
    return own == others and axes <= {loop.thread for loop in own}


def _have_same_guards(leaf: BlockLeaf, reader: BlockLeaf) -> bool:
    """Return whether blocks that follow one another are emitted under one condition."""
    if leaf.parent is not reader.parent or leaf.is_clamped or reader.is_clamped:
        return False
    assert leaf.parent is not None
    siblings = leaf.parent.body
    between = siblings[siblings.index(leaf) : siblings.index(reader) + 1]
    return all(isinstance(each, BlockLeaf) and each.guards == leaf.guards for each in between)


def _is_straight(loop: Loop) -> bool:
    """Return whether a loop is straight code in the one around it."""
    if (
        loop.kind == BOUND
        or loop.is_peeled
        or loop.is_unswitched
        or isinstance(loop.form, (TileStart, LoopIntrinsic, Transposition))
    ):
        return False
    return loop.extent == 1 or _is_element(loop) and isinstance(loop.extent, int) and loop.extent <= MAX_UNROLL


def _place(leaf: BlockLeaf, access: BufferAccess, elements: Sequence[Loop]) -> list[IndexExpr]:
    """Return an access as expressions of the loops, with those over elements of a thread by their positions."""
    names = {loop.name: loop_index(_ELEMENT.format(i)) for i, loop in enumerate(elements)}
    return [index.replace(names) for index in without_single(leaf.place(access), leaf)]


def _have_same_extents(loops: Sequence[Loop], others: Sequence[Loop]) -> bool:
    return [loop.extent for loop in loops] == [loop.extent for loop in others]
