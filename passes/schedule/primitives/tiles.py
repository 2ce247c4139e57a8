"""Tiles of what a block reads, with a dim for each of its innermost loops; and iterations past the end of loops."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.passes.schedule.blocks.combine import reducer_of
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.loops import require_serial, unique_loop_name
from mirlo.passes.schedule.primitives.tree import (
    LETTERS,
    VECTORIZED,
    Accumulation,
    BlockLeaf,
    BufferAccess,
    Guard,
    Loop,
    Root,
    ScheduleBuffer,
    ScheduleError,
    TreeBlock,
    around,
    axis_name,
    nested,
    placed_at,
    set_children,
)
from mirlo.runtime.names import unused_name


def cache_tile(
    root: Root, leaf: BlockLeaf, reader: BlockLeaf, buffer: ScheduleBuffer, scope: str, loops: Sequence[Loop]
) -> BlockLeaf:
    """Copy the elements of a buffer that a block reads, or one computed with it, in some loops; return the copy.

    It is made before these loops, the innermost ones, and has a dim for each of them.
    """
    inside = _require_innermost(leaf, loops)
    own = [access for access in reader.reads if access.buffer is buffer and not access.is_tile]
    places = [placed_at(placed_at(access.at, reader.at), leaf.at if reader is not leaf else []) for access in own]
    if not own or any(place != places[0] for place in places[1:]):
        raise ScheduleError(f"cache_read: '{reader.name}' reads no element of '{buffer.name}', or several")
    if any(a.outside is not None or a.is_opaque or a.inlined is not None or a.register is not None for a in own):
        raise ScheduleError(f"cache_read: '{reader.name}' reads '{buffer.name}' beyond its edges, or as a whole")
    extents = [D.static_dim(loop.extent) for loop in loops]
    name = unused_name(f"{buffer.name}_{scope or 'tile'}", {other.name for other in root.buffers})
    tile = ScheduleBuffer(name, tuple(extents), buffer.element, scope=scope, order=tuple(range(len(loops))), alias=name)
    root.buffers.append(tile)
    copy = _copy(root, leaf, buffer, tile, places[0], loops)
    for access in own:
        access.buffer, access.at, access.is_tile = tile, [loop_index(loop.name) for loop in loops], True
    own_loops = [Loop(unique_loop_name(root, f"{copy.name}_{LETTERS[i]}"), extent) for i, extent in enumerate(extents)]
    parent = inside[0].parent
    assert parent is not None
    names = {loop.name: loop_index(new.name) for loop, new in zip(loops, own_loops, strict=True)}
    copy.at = [index.replace(names) for index in copy.at]
    copy.guards = [(index.replace(names), bound) for index, bound in copy.guards]
    before = parent.body[: parent.body.index(inside[0])]
    set_children(parent, [*before, nested(own_loops, copy), *parent.body[len(before) :]])
    return copy


def _require_innermost(leaf: BlockLeaf, loops: Sequence[Loop]) -> list[Loop]:
    """Require that loops are the innermost ones around a block, which they have alone; return them in their order."""
    chain = around(leaf)
    inside = chain[len(chain) - len(loops) :]
    if not loops or {loop.name for loop in inside} != {loop.name for loop in loops} or len(loops) > len(chain):
        listed = ", ".join(loop.name for loop in loops) or "none"
        raise ScheduleError(f"cache_read: expected the innermost loops around '{leaf.name}', found {listed}")
    for loop in inside:
        require_serial(loop)
        if len(loop.body) != 1 or not isinstance(loop.extent, int):
            raise ScheduleError(f"cache_read: '{loop.name}' has no fixed extent, or more in it than '{leaf.name}'")
    return inside


def _copy(
    root: Root,
    leaf: BlockLeaf,
    source: ScheduleBuffer,
    tile: ScheduleBuffer,
    place: Sequence[IndexExpr],
    loops: Sequence[Loop],
) -> BlockLeaf:
    """Return the block that copies an element, whose axes are the loops around, and then those of the tile."""
    outer = [loop for loop in around(leaf) if loop not in loops]
    axes = [*outer, *loops]
    names = {loop.name: loop_index(axis_name(i)) for i, loop in enumerate(axes)}
    name = unused_name(tile.name, {other.name for other in root.leaves()})
    read = BufferAccess(source, [index.replace(names) for index in place])
    write = BufferAccess(tile, [loop_index(axis_name(len(outer) + i)) for i in range(len(loops))])
    return BlockLeaf(
        name, TreeBlock.copy([loop.extent for loop in axes]), [read], [write],
        [loop_index(loop.name) for loop in axes], list(leaf.guards),
    )  # fmt: skip


def clamp(leaf: BlockLeaf) -> None:
    """Clamp the reads of a block to the last elements in iterations past the end of its loops, which store nothing."""
    if not leaf.guards:
        raise ScheduleError(f"clamp: all iterations of the loops around '{leaf.name}' compute an element")
    if leaf.form is not None and not isinstance(leaf.form, Accumulation):
        raise ScheduleError(f"clamp: '{leaf.name}' is decomposed, or scheduled by a rule")
    if leaf.is_reduction and (leaf.form is None or leaf.view is None or reducer_of(leaf.view) is None):
        raise ScheduleError(
            f"clamp: '{leaf.name}' is a reduction whose results are not in registers (accumulate), or that does not "
            "end with one operation on its former result, such as a sum"
        )
    for index, _ in leaf.guards:
        if _own_loop(index) is None:
            raise ScheduleError(f"clamp: no loop moves the index '{index}' of '{leaf.name}', which is limited, by one")
    limited = {name for index, _ in leaf.guards for name in index.variables()}
    if any(loop.kind == VECTORIZED and loop.name in limited for loop in around(leaf)):
        raise ScheduleError(f"clamp: '{leaf.name}' is in a vectorized loop, whose lanes are masked")
    leaf.is_clamped = True


def _own_loop(index: IndexExpr) -> str | None:
    """Return a loop that moves an index by one."""
    return next((atom for atom, step in index.terms.items() if isinstance(atom, str) and step == 1), None)


def clamped_values(guards: Sequence[Guard], values: LoopValues) -> LoopValues:
    """Return the values of loops that are moved back where the iteration is past the end, emitted once in a block."""
    if not guards:
        return values
    named = [(_own_loop(index), values.with_numbers(index), bound) for index, bound in guards]

    def emit() -> dict[str, LoopValue]:
        moved: dict[str, LoopValue] = {}
        for (name, index, bound), (whole, _) in zip(named, guards, strict=True):
            assert name is not None, "the primitive requires it"
            rest = values.emit(whole - loop_index(name))
            moved[name] = values.emit(index).minimum(values.emit(bound - 1)) - rest
        return moved

    return values.moved(frozenset(named), emit)


def keeps_tile(leaf: BlockLeaf) -> bool:
    """Return whether a block fills a tile of its own, which has room for iterations past the end."""
    return leaf.view is None and bool(leaf.writes[0].buffer.scope)
