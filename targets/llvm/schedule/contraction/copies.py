"""Copies of a contraction's operands: with a border, converted, and panels of columns."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    RegisterTile,
    TiledContraction,
)
from mirlo.targets.llvm.schedule.cost import (
    COPY_VECTORS,
)


def has_smaller_panel(columns: BlockAxis, tile: RegisterTile) -> bool:
    """Return whether the last of several panels may be smaller than others."""
    is_single = isinstance(columns.extent, int) and columns.extent < tile.columns
    return not is_single and columns.extent % tile.columns != 0


def copy_operands(s: Schedule, block: str, plan: TiledContraction) -> list[str]:
    """Copy operands with elements beyond edges that the loops do not skip; return copies that are converted."""
    converted: list[str] = []
    for side in (plan.roles.rows, plan.roles.columns):
        buffer = s.reads(block)[side.factor.position]
        if side.padded_shape is None and not side.is_converted:
            continue
        copy = s.cache_read(block, buffer) if side.padded_shape is None else s.pad(block, buffer, padded_dims(side))
        arrange_copy(s, copy, plan.tile.lanes * (1 if plan.tile.group is None else plan.tile.group.size))
        converted += [copy] if side.is_converted else []
    return converted


def padded_dims(side: ContractionOperand) -> list[int]:
    """Return the dims along which the copy of an operand has a border."""
    assert side.padded_shape is not None
    pairs = enumerate(zip(side.padded_shape, side.access.shape, strict=True))
    return [dim for dim, (size, old) in pairs if size != old or side.padding[dim]]


def arrange_copy(s: Schedule, copy: str, lanes: int, shared: Sequence[str] = ()) -> None:
    """Arrange the loops of a copy with a border: the border apart, and vectors along memory.

    Threads divide the outermost loops: those that are `shared`, of several parts, or all of a part.
    """
    loops = [loop for loop in s.loops(copy) if s.extent(loop) != 1 and loop not in shared]
    if not loops:
        return
    edge = next((loop for loop in loops[:-1] if s.change_points(loop)), None)
    if edge is not None:
        around = loops[: loops.index(edge)]
        for loop in around if not shared else ():
            s.parallel(loop)
        for part in s.partition(edge, s.change_points(edge)):
            arrange_copy(s, s.blocks(part)[0], lanes, [*shared, *around])
        return
    *outer, last = fuse_contiguous(s, copy, loops)
    units = s.loops(copy)[s.loops(copy).index(last) + 1 :]
    if units:
        s.reorder(*units, last)
    vectors, lane = s.split(last, (None, lanes))
    s.vectorize(lane)
    for loop in (*outer, vectors) if not shared else ():
        s.parallel(loop)


def pack_panel(s: Schedule, block: str, panel: str, plan: TiledContraction) -> list[str]:
    """Pack each panel of columns before the tiles that read it: rows of columns, one for each k-step.

    Return the copy if it is converted.
    """
    operand = plan.roles.columns.factor.position
    step = s.steps(block)[s.loops(block)[-1]][operand]
    copy = s.cache_read(block, operand)
    s.compute_at(copy, panel)
    loops = [loop for loop in s.loops(copy) if loop not in s.loops(block)]
    if plan.is_interleaved:
        interleave_panel(s, block, operand, copy, loops, plan.tile)
        return []
    if plan.tile.group is not None:  # stored as the panel is: it is extended, element by element
        *_, last = fuse_contiguous(s, copy, [loop for loop in loops if s.extent(loop) != 1])
        _, vectors, lane = s.split(last, (None, COPY_VECTORS, plan.tile.lanes * plan.tile.group.size))
        s.unroll(vectors)
        s.vectorize(lane)
        return [copy]
    column = next((loop for loop in loops if s.strides(copy, loop)[0][0] == step and s.extent(loop) != 1), None)
    if column is None:
        raise ScheduleError("a copy of columns has no loop over them: windows overlap, and skip elements")
    depth = [loop for loop in loops if loop != column]
    s.pack(s.reads(block)[operand], [loops.index(loop) for loop in (*depth, column)])
    converted = [copy] if plan.roles.columns.needs_cast(plan.roles.contraction.product.accumulate_type) else []
    if step == 1:
        s.reorder(*depth, column)
        vectors, lane = s.split(column, (None, plan.tile.lanes))
        s.vectorize(lane)
        s.unroll(vectors)
        if depth and has_smaller_panel(plan.roles.lane_axis, plan.tile):  # whole panels without masks
            s.unswitch(depth[0])
        return converted
    vectors, lane = s.split(column, (None, plan.tile.lanes))
    is_masked = plan.machine.masked and isinstance(s.extent(depth[-1]), int)
    steps, square = s.split(depth[-1], (None, plan.tile.lanes), tail="mask" if is_masked else "peel")
    s.reorder(vectors, *depth[:-1], steps, square, lane)
    s.vectorize(lane)
    s.transpose(square)
    return converted


def interleave_panel(s: Schedule, block: str, operand: int, copy: str, loops: list[str], tile: RegisterTile) -> None:
    """Arrange the copy of a panel so that the elements of a column in a group of K are contiguous."""
    assert tile.group is not None
    size, steps = tile.group.size, s.steps(block)
    own, element = steps[s.loops(block)[-2]][operand], steps[s.loops(block)[-1]][operand]
    strides = {loop: s.strides(copy, loop)[0][0] for loop in loops if s.extent(loop) != 1}
    column = next((loop for loop, step in strides.items() if step == own), None)
    depth = next((loop for loop, step in strides.items() if step == element and loop != column), None)
    if column is None or depth is None:
        raise ScheduleError("a copy of columns has no loop over them, or none over elements of a group")
    others = [loop for loop in loops if loop not in (column, depth)]
    s.pack(s.reads(block)[operand], [loops.index(loop) for loop in (*others, depth, column)],
           [(loops.index(depth), size)])  # fmt: skip
    vectors, lane = s.split(column, (None, tile.lanes))
    if element == 1:
        squares, group, part = s.split(depth, (None, tile.lanes, size), tail="peel")
        s.reorder(*others, squares, vectors, group, lane, part)
        s.unroll(vectors)
        s.vectorize(lane)
        s.transpose(group)
        return
    groups, part = s.split(depth, (None, size), tail="peel")
    s.reorder(*others, groups, vectors, part, lane)
    s.unroll(vectors)
    s.vectorize(lane)
    s.transpose(part)
