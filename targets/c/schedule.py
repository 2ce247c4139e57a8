"""Schedules of target `c`: reductions into small arrays of accumulators, which C compilers keep in registers.

    for (j = 0; j < n; j += 32)
      for each row
        float sums[32] = {0};
        for (k = 0; k < size; k += 4)
          for (t = 0; t < 32; ++t)
            sums[t] += a[row][k] * b[k][j + t];      (and the next three of k)

The inner loop has a constant length and unit strides, and adds to independent accumulators, so that compilers make
vectors of it without reordering sums. Elementwise blocks that follow are computed when a tile is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import le, lt
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.affine import read_map
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.primitives.schedule import Schedule

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext

TILES = (64, 48, 32, 24, 16, 8)
"""Numbers of accumulators: the first that divides the axis is taken. Many hide the latency of additions."""
STEPS = 4
"""Steps of the innermost loop that are added at a time: each accumulator is then loaded and stored once for all."""
USUAL_TILE = 32
"""The number of accumulators of an axis that none of them divides."""


@schedule(target="c")
def accumulator_tiles(kernel: Kernel, context: ScheduleContext) -> ir.OpView | Decline:
    """Schedule reductions into arrays of accumulators along an axis of the result, the other blocks as loop nests."""
    blocks = kernel.view.blocks
    axes = {i: axis for i, block in enumerate(blocks) if (axis := _accumulated_axis(block)) is not None}
    if not axes:
        return decline("no reduction has an axis of the result for accumulators", blocks=[b.name for b in blocks])
    s = Schedule(kernel.view)
    names = s.blocks()
    tiles = []
    for i, axis in axes.items():
        block = blocks[i]
        tiles.append(_tile_size(block.domain[axis]))
        if len(block.outputs) > 1:  # accumulated in the results' memory
            _tile(s, names[i], block, axis)
            continue
        has_epilogue = i + 1 not in axes and _is_epilogue(blocks[i + 1 : i + 2], block, kernel.view.returned)
        last = names[i + 1] if has_epilogue else s.cache_write(names[i], "local")
        s.reverse_compute_at(last, _tile(s, names[i], block, axis))
    return s.emit({"rule": "accumulator_tiles", "tiles": tiles})


def _tile_size(extent: Dim) -> int:
    return next((size for size in TILES if isinstance(extent, int) and extent % size == 0), USUAL_TILE)


def _tile(s: Schedule, name: str, block: BlockView, axis: int) -> str:
    """Arrange the loops of a reduction, and return the loop in which a tile of it is complete.

    The loop over tiles is around those of axes that the operands along it do not depend on: all rows of a product
    use the same columns of the other matrix, while these are in the cache.
    """
    loops, tested = s.loops(name), _tested_axes(block)
    along = [read_map(operand.map, block.domain) for operand in block.inputs]
    along = [values for values in along if any(axis in value.variables() for value in values)]
    fixed: set[int] = set().union(*(value.variables() for values in along for value in values))
    rows = [i for i in block.spatial if i != axis]
    tiles, lane = s.split(loops[axis], (None, _tile_size(block.domain[axis])), tail="peel")
    around = [*(loops[i] for i in rows if i in fixed), tiles, *(loops[i] for i in rows if i not in fixed)]
    inner = _inner_axis(block, tested)
    reduced, inside = [loops[i] for i in block.reduce if i != inner], [lane]
    if inner is not None and not D.is_certain(partial(lt, block.domain[inner], STEPS)):
        outer, steps = s.split(loops[inner], (None, STEPS), tail="peel")
        s.unroll(steps)
        reduced, inside = [*reduced, outer], [lane, steps]
    elif inner is not None:
        reduced = [*reduced, loops[inner]]
    s.reorder(*around, *reduced, *inside)
    if tested:
        s.unswitch(lane if inner is None else reduced[-1])
    s.decompose_reduction(name, reduced[0])
    return around[-1]


def _inner_axis(block: BlockView, tested: set[int]) -> int | None:
    """Return the last axis of the reduction that no test for edges depends on, a long one if there is one."""
    free = [i for i in block.reduce if i not in tested]
    long = [i for i in free if D.is_certain(partial(le, STEPS, block.domain[i]))]
    return next(reversed(long or free), None)


def _tested_axes(block: BlockView) -> set[int]:
    """Return the axes on which it depends whether an operand is read beyond its edges."""
    tested: set[int] = set()
    for operand in block.inputs:
        if operand.outside is not None:
            for value, size in zip(read_map(operand.map, block.domain), operand.shape, strict=True):
                low, high = value.range(block.domain)
                if not (D.is_certain(partial(le, 0, low)) and D.is_certain(partial(lt, high, size))):
                    tested |= value.variables()
    return tested


def _accumulated_axis(block: BlockView) -> int | None:
    """Return the axis for the accumulators of a reduction: the last one, if the result is contiguous along it."""
    if not block.is_reduction or any(init is None for init in block.init):
        return None
    if any(output.map != block.outputs[0].map for output in block.outputs):
        return None
    result = read_map(block.outputs[0].map, block.domain)
    last = result[-1].variables() if result else set()
    if len(last) != 1 or any(operand.is_opaque for operand in block.inputs):
        return None
    axis = int(last.pop())
    extent = block.domain[axis]
    if axis not in block.spatial or any(axis in index_.variables() for index_ in result[:-1]):
        return None
    if isinstance(extent, int) and extent < TILES[-1]:
        return None
    along = [any(axis in value.variables() for value in read_map(o.map, block.domain)) for o in block.inputs]
    if axis in _tested_axes(block) or not any(along):
        return None
    if all(along) and not all(_is_contiguous(operand, axis, block) for operand in block.inputs):
        return None
    return axis


def _is_contiguous(operand: OperandView, axis: int, block: BlockView) -> bool:
    """Return whether an operand is read with unit stride along an axis."""
    *others, last = read_map(operand.map, block.domain)
    return last.coefficient(axis) == 1 and not any(axis in value.variables() for value in others)


def _is_epilogue(following: Sequence[BlockView], block: BlockView, returned: Sequence[ir.Value]) -> bool:
    """Return whether the next block is elementwise and the only reader of a reduction, in its order."""
    output = block.outputs[0]
    domain = [block.domain[i] for i in block.spatial]
    if not _is_identity(output.map, block.spatial, block.domain) or not following or output.value in returned:
        return False
    (after,) = following
    reads = [operand for operand in after.inputs if operand.value == output.value]
    return (
        not after.is_reduction
        and all(use.owner.operation == after.op for use in output.value.uses)
        and list(after.domain) == domain
        and bool(reads)
        and not any(o.is_opaque or o.outside is not None for o in reads)
        and all(_is_identity(o.map, range(after.rank), domain) for o in reads)
    )


def _is_identity(map_: ir.AffineMap, axes: Sequence[int], domain: Sequence[Dim]) -> bool:
    """Return whether the results of a map are these axes, in order; an axis of extent 1 may be written as 0."""
    return len(map_.results) == len(axes) and all(
        expr.position == axis if isinstance(expr, ir.AffineDimExpr) else domain[axis] == 1 and _is_zero(expr)
        for expr, axis in zip(map_.results, axes, strict=True)
    )


def _is_zero(expr: ir.AffineExpr) -> bool:
    return isinstance(expr, ir.AffineConstantExpr) and bool(expr.value == 0)
