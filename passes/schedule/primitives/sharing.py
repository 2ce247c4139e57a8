"""The schedule primitive `share_memory`: a buffer in the memory of a result."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.primitives.tree import (
    BlockLeaf,
    JoinedThreads,
    Root,
    RowBlocks,
    ScheduleBuffer,
    ScheduleError,
    SharedPosition,
    around,
    placed_at,
    reads_of,
)


def share_memory(root: Root, name: str, result: str) -> None:
    """Keep a buffer in the memory of a result."""
    buffer, target = root.find_buffer(name), root.find_buffer(result)
    _require_alike(root, buffer, target)
    buffer.shared = target


def _require_alike(root: Root, buffer: ScheduleBuffer, target: ScheduleBuffer) -> None:
    """Require that a buffer, which has no memory of its own kind, has the shape and type of a block's result."""
    if buffer.is_parameter or buffer.scope or buffer.tiles or buffer.padding is not None:
        raise ScheduleError(f"share_memory: '{buffer.name}' is a parameter, or has memory of its own kind")
    if target.value is None or target.value in root.view.arguments:
        raise ScheduleError(f"share_memory: '{target.name}' is no value that a block computes")
    if buffer.shape != target.shape or buffer.element != target.element or buffer.order != target.order:
        raise ScheduleError(
            f"share_memory: '{buffer}' of {buffer.element} and '{target}' of {target.element} are not alike"
        )
    if buffer.shared is not None or target.shared is not None:
        raise ScheduleError(f"share_memory: '{(buffer if buffer.shared else target).name}' shares memory already")


def is_sharable(root: Root, name: str, result: str) -> bool:
    """Return whether a buffer can be in the memory of a result, with the loops as they are."""
    try:
        buffer, target = root.find_buffer(name), root.find_buffer(result)
        _require_alike(root, buffer, target)
        require_sharable(root, buffer, target)
    except ScheduleError:
        return False
    return True


def require_sharable(root: Root, buffer: ScheduleBuffer, target: ScheduleBuffer) -> None:
    """Require that elements of a buffer are read before, or where, those of the result are written over them.

    Of two buffers in its memory, one is read before the other one is written.
    """
    _require_order(root, buffer, target)
    for other in root.buffers:
        if other is not buffer and other.shared is target:
            try:
                _require_order(root, buffer, other)
            except ScheduleError:
                _require_order(root, other, buffer)


def _require_order(root: Root, buffer: ScheduleBuffer, target: ScheduleBuffer) -> None:
    leaves = root.leaves()
    writes = {id(leaf): list(_written(leaf, target)) for leaf in leaves}
    touched = {id(leaf): [*_written(leaf, buffer), *_read(leaf, buffer)] for leaf in leaves}
    writers = [leaf for leaf in leaves if writes[id(leaf)]]
    users = [leaf for leaf in leaves if touched[id(leaf)]]
    if not users or not writers:
        return
    what = f"share_memory: '{buffer.name}' is in the memory of '{target.name}'"
    chains = [around(leaf) for leaf in (*users, *writers)]
    shared = itertools.takewhile(lambda level: all(loop is level[0] for loop in level), zip(*chains, strict=False))
    # Threads of a loop that was several loops use elements of their own, or wait for one another.
    common = list(
        itertools.takewhile(lambda loop: not isinstance(loop.form, JoinedThreads), (level[0] for level in shared))
    )
    shared_positions = [loop.form for loop in common if isinstance(loop.form, SharedPosition)]
    together = {name for position in shared_positions for name in position.index.variables()}
    together |= {loop.name for loop in common if isinstance(loop.form, RowBlocks)}  # each has rows of its own
    names = {loop.name for loop in common if loop.extent != 1} - together
    places = [place for leaf in leaves for place in (*writes[id(leaf)], *touched[id(leaf)])]
    by_iteration = [[index if index.variables() & names else None for index in place] for place in places]
    reached = _reached(index for index in by_iteration[0] if index is not None)
    if any(each != by_iteration[0] for each in by_iteration) or not names <= reached:
        raise ScheduleError(f"{what}, and an iteration of '{common[-1].name}' accesses elements of another one")
    after = leaves[leaves.index(writers[0]) :]
    for at, leaf in enumerate(after):
        loops = around(leaf)
        # Elements that this iteration writes next, and that no other one writes, in this part of a loop or in another.
        next_writes = [place for each in after[at:] if around(each) == loops for place in writes[id(each)]]
        moved = {loop.name for loop in loops if loop.extent != 1} - together
        own = [place for place in next_writes if _reached(place) >= moved]
        if not all(place in own for place in touched[id(leaf)]):
            raise ScheduleError(f"{what}, and '{leaf.name}' accesses it after '{writers[0].name}' has written there")


def _reached(place: Iterable[IndexExpr]) -> set[str]:
    """Return the loops that an element depends on."""
    return {name for index in place for name in index.variables()}


def _written(leaf: BlockLeaf, buffer: ScheduleBuffer) -> Iterator[list[IndexExpr]]:
    """Yield the elements of a buffer that a block writes, and those that are computed on its results."""
    for access in leaf.writes:
        if access.buffer is buffer:
            yield leaf.place(access)
    for after in leaf.epilogue:
        for access in after.writes:
            if access.buffer is buffer:
                yield placed_at(access.at, placed_at(after.at, leaf.at))


def _read(leaf: BlockLeaf, buffer: ScheduleBuffer) -> Iterator[list[IndexExpr]]:
    """Yield the elements of a buffer that a block reads; an empty list for those that its body picks."""
    for access, axes in reads_of(leaf):
        if access.buffer is buffer:
            yield [] if access.is_opaque else placed_at(access.at, axes)
