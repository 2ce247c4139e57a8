"""Schedules of target `c`: reductions into small arrays of accumulators, which C compilers keep in registers.

    for (j = 0; j < n; j += 32)
      for each row
        float sums[32] = {0};
        for (k = 0; k < size; ++k)
          for (t = 0; t < 32; ++t) sums[t] += a[row][k] * b[k][j + t];      (four k at a time)

The inner loop has a constant length and unit strides, and adds to independent accumulators, so that compilers make
vectors of it without reordering sums. Elementwise blocks that follow are computed when a tile is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import le, lt
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import arith, ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.affine import read_map
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.loops import (
    all_inside,
    apply_map,
    attribute_constant,
    clone_body,
    for_loop,
    load,
    nest,
    store,
)
from mirlo.passes.schedule.nest import emit_block, read_operand

if TYPE_CHECKING:
    from mirlo.passes.schedule.schedule import Kernel, ScheduleContext

TILES = (64, 48, 32, 24, 16, 8)
"""Numbers of accumulators: the first that divides the axis is taken. Many hide the latency of additions."""
STEPS = 4
"""Steps of the innermost loop that are added at a time: each accumulator is then loaded and stored once for all."""
USUAL_TILE = 32
"""The number of accumulators of an axis that none of them divides: the rest is computed element by element."""


@dataclass(frozen=True)
class TiledBlock:
    """A reduction with the axis along which it has accumulators, and the elementwise blocks computed with it."""

    block: BlockView
    axis: int
    epilogue: tuple[BlockView, ...] = ()

    @property
    def tile(self) -> int:
        """Return the number of accumulators."""
        extent = self.block.domain[self.axis]
        return next((t for t in TILES if isinstance(extent, int) and extent % t == 0), USUAL_TILE)


@schedule("any", target="c")
def accumulator_tiles(kernel: Kernel, context: ScheduleContext) -> ir.OpView | Decline:
    """Schedule reductions into arrays of accumulators along an axis of the result, the other blocks as loop nests."""
    blocks = kernel.view.blocks
    tiled = {i: found for i, block in enumerate(blocks) if (found := _tiled(block)) is not None}
    if not tiled:
        return decline("no reduction has an axis of the result for accumulators", blocks=[b.name for b in blocks])
    buffers = BufferFunction(kernel.view)

    def body() -> None:
        done = 0
        for i, block in enumerate(blocks):
            if i < done:
                continue
            found = tiled.get(i)
            if found is None:
                emit_block(block, buffers)
                continue
            epilogue = _epilogue(block, blocks[i + 1 :], kernel.view.returned)
            _Tiles(TiledBlock(block, found.axis, epilogue), buffers).emit()
            done = i + 1 + len(epilogue)

    sizes = [found.tile for found in tiled.values()]
    return buffers.build(body, {"rule": "accumulator_tiles", "tiles": sizes})


def _tiled(block: BlockView) -> TiledBlock | None:
    """Return the axis for the accumulators of a reduction: the last one, if the result is contiguous along it."""
    if not block.is_reduction or len(block.outputs) != 1 or any(init is None for init in block.init):
        return None
    result = read_map(block.outputs[0].map, block.domain)
    last = result[-1].variables() if result else set()
    if len(last) != 1:
        return None
    (axis,) = last
    extent = block.domain[axis]
    if axis not in block.spatial or any(axis in index_.variables() for index_ in result[:-1]):
        return None
    if isinstance(extent, int) and extent < TILES[-1]:
        return None
    depends = [_reads_along(operand, axis, block) for operand in block.inputs if not operand.is_opaque]
    if len(depends) != len(block.inputs) or None in depends or not any(depends):
        return None
    if all(depends) and not all(_is_contiguous(operand, axis, block) for operand in block.inputs):
        return None
    return TiledBlock(block, axis)


def _is_contiguous(operand: OperandView, axis: int, block: BlockView) -> bool:
    """Return whether an operand is read with unit stride along an axis."""
    *others, last = read_map(operand.map, block.domain)
    return last.coefficient(axis) == 1 and not any(axis in value.variables() for value in others)


def _reads_along(operand: OperandView, axis: int, block: BlockView) -> bool | None:
    """Return whether an operand's elements differ along an axis; None if a test for its edges does too."""
    along = [axis in value.variables() for value in read_map(operand.map, block.domain)]
    if operand.outside is not None and any(along):
        ranges = [value.range(block.domain) for value in read_map(operand.map, block.domain)]
        for is_along, (low, high), size in zip(along, ranges, operand.shape, strict=True):
            if is_along and not (D.is_certain(partial(le, 0, low)) and D.is_certain(partial(lt, high, size))):
                return None
    return any(along)


def _epilogue(block: BlockView, following: Sequence[BlockView], returned: Sequence[ir.Value]) -> tuple[BlockView, ...]:
    """Return the elementwise blocks after a reduction that read its result in its order, and nothing else reads."""
    made = block.outputs[0]
    domain = [block.domain[i] for i in block.spatial]
    if not _is_identity(made.map, block.spatial, block.domain) or not following:
        return ()
    after = following[0]
    reads = [operand for operand in after.inputs if operand.value == made.value]
    if (
        after.is_reduction
        or made.value in returned
        or any(use.owner.operation != after.op for use in made.value.uses)
        or list(after.domain) != domain
        or not reads
        or any(
            o.is_opaque or o.outside is not None or not _is_identity(o.map, range(after.rank), domain) for o in reads
        )
    ):
        return ()
    return (after,)


def _is_identity(map_: ir.AffineMap, axes: Sequence[int], domain: Sequence[Dim]) -> bool:
    """Return whether the results of a map are these axes, in order; an axis of extent 1 may be written as 0."""
    return len(map_.results) == len(axes) and all(
        expr.position == axis if isinstance(expr, ir.AffineDimExpr) else domain[axis] == 1 and _is_zero(expr)
        for expr, axis in zip(map_.results, axes, strict=True)
    )


def _is_zero(expr: ir.AffineExpr) -> bool:
    return isinstance(expr, ir.AffineConstantExpr) and bool(expr.value == 0)


class _Tiles:
    """The emitter of one reduction."""

    def __init__(self, tiled: TiledBlock, buffers: BufferFunction) -> None:
        self.tiled, self.block, self.axis = tiled, tiled.block, tiled.axis
        self.inputs = [buffers.buffer(operand.value) for operand in self.block.inputs]
        self.buffers = buffers
        start = self.block.init[0]
        assert start is not None
        self.start = start
        self.inner = self._inner_axis()
        self.sums = buffers.scratch([tiled.tile], start.type)

    def _inner_axis(self) -> int | None:
        """Return the last axis of the reduction that no test for edges depends on, a long one if there is one."""
        tested: set[int] = set()
        for operand in self.block.inputs:
            if operand.outside is None:
                continue
            for value, size in zip(read_map(operand.map, self.block.domain), operand.shape, strict=True):
                low, high = value.range(self.block.domain)
                if not (D.is_certain(partial(le, 0, low)) and D.is_certain(partial(lt, high, size))):
                    tested |= value.variables()
        free = [i for i in self.block.reduce if i not in tested]
        long = [i for i in free if D.is_certain(partial(le, STEPS, self.block.domain[i]))]
        return next(reversed(long or free), None)

    def emit(self) -> None:
        """Emit the loops over the result.

        The loop over tiles is around those of axes that the operands along it do not depend on: all rows of a product
        use the same columns of the other matrix, while these are in the cache.
        """
        block, tile = self.block, self.tiled.tile
        rows = [i for i in block.spatial if i != self.axis]
        fixed: set[int] = set()
        for number, operand in enumerate(block.inputs):
            if self._is_along(number):
                fixed = fixed.union(*(value.variables() for value in read_map(operand.map, block.domain)))
        outer, inner = [i for i in rows if i in fixed], [i for i in rows if i not in fixed]
        extent: Dim = block.domain[self.axis]
        full = extent // tile * tile

        def columns(at: Mapping[int, ir.Value], j: ir.Value, count: int) -> None:
            extents = [block.domain[i] for i in inner]
            nest(extents, lambda values: self._tile({**at, **dict(zip(inner, values, strict=True))}, j, count))

        def tiles(values: Sequence[ir.Value]) -> None:
            at = dict(zip(outer, values, strict=True))
            if full != 0:
                for_loop(0, full, tile, lambda j: columns(at, j, tile))
            if full != extent:
                for_loop(full, extent, 1, lambda j: columns(at, j, 1))

        nest([block.domain[i] for i in outer], tiles)

    def _tile(self, at: Mapping[int, ir.Value], first: ir.Value, count: int) -> None:
        """Emit `count` elements of the result from one on."""
        shape = [self.tiled.tile]

        def clear(t: ir.Value) -> None:
            store(attribute_constant(self.start), self.sums, shape, [t])

        for_loop(0, count, 1, clear)
        outer = [i for i in self.block.reduce if i != self.inner]
        extents = [self.block.domain[i] for i in outer]
        nest(extents, lambda k: self._add({**at, **dict(zip(outer, k, strict=True)), self.axis: first}, first, count))
        for_loop(0, count, 1, lambda t: self._store({**at, self.axis: _sum(first, t)}, load(self.sums, shape, [t])))

    def _add(self, values: Mapping[int, ir.Value], first: ir.Value, count: int) -> None:
        """Add the terms of the innermost loop of the reduction to all accumulators."""
        inside = self._all_inside(values)
        if inside is None:
            self._add_steps(values, first, count, checked=True)
            return
        branch = scf.IfOp(inside, has_else=True)
        for block, checked in ((branch.then_block, True), (branch.else_block, False)):
            with ir.InsertionPoint(block):
                self._add_steps(values, first, count, checked)
                scf.YieldOp([])

    def _add_steps(self, values: Mapping[int, ir.Value], first: ir.Value, count: int, checked: bool) -> None:
        """Emit the innermost loop of the reduction, several steps at a time."""
        inner = self.inner
        if inner is None:
            self._add_points([values], first, count, checked)
            return
        extent: Dim = self.block.domain[inner]
        unrolled = extent // STEPS * STEPS

        def several(k: ir.Value) -> None:
            points = [{**values, inner: _sum(k, index(step)) if step else k} for step in range(STEPS)]
            self._add_points(points, first, count, checked)

        def one(k: ir.Value) -> None:
            self._add_points([{**values, inner: k}], first, count, checked)

        if unrolled != 0:
            for_loop(0, unrolled, STEPS, several)
        if unrolled != extent:
            for_loop(unrolled, extent, 1, one)

    def _add_points(self, points: Sequence[Mapping[int, ir.Value]], first: ir.Value, count: int, checked: bool) -> None:
        """Emit the loop over the accumulators that adds these points; where `checked`, none is beyond the edges."""
        block, shape = self.block, [self.tiled.tile]
        along = [self._is_along(i) for i in range(len(block.inputs))]
        known = [[None if along[i] else self._read(i, at, checked) for i in range(len(along))] for at in points]

        def add(t: ir.Value) -> None:
            value = load(self.sums, shape, [t])
            position = _sum(first, t)
            for at, read in zip(points, known, strict=True):
                here = {**at, self.axis: position}
                found = [known if known is not None else self._read(i, here, checked) for i, known in enumerate(read)]
                env = dict(zip(block.index_arguments, [here[i] for i in range(block.rank)], strict=True))
                env.update(zip(block.input_arguments, found, strict=True))
                env.update(zip(block.accumulators, [value], strict=True))
                (value,) = clone_body(block, env)
            store(value, self.sums, shape, [t])

        for_loop(0, count, 1, add)

    def _is_along(self, number: int) -> bool:
        operand = self.block.inputs[number]
        return any(self.axis in value.variables() for value in read_map(operand.map, self.block.domain))

    def _read(self, number: int, values: Mapping[int, ir.Value], checked: bool) -> ir.Value:
        operand, buffer = self.block.inputs[number], self.inputs[number]
        indices = [values[i] for i in range(self.block.rank)]
        if checked:
            return load(buffer, operand.shape, apply_map(operand.map, indices))
        return read_operand(operand, buffer, indices, self.block.domain)

    def _all_inside(self, values: Mapping[int, ir.Value]) -> ir.Value | None:
        """Emit whether all operands with edges are read inside of them; None if that is certain."""
        condition = None
        filler = index(0)  # no test depends on the innermost axis
        for operand in self.block.inputs:
            if operand.outside is None:
                continue
            where = apply_map(operand.map, [values.get(i, filler) for i in range(self.block.rank)])
            ranges = [value.range(self.block.domain) for value in read_map(operand.map, self.block.domain)]
            test = all_inside(where, operand.shape, ranges)
            if test is not None:
                condition = test if condition is None else arith.AndIOp(condition, test).result
        return condition

    def _store(self, at: Mapping[int, ir.Value], value: ir.Value) -> None:
        """Store an element of the result, or what the elementwise blocks make of it."""
        block = self.block
        if not self.tiled.epilogue:
            filler = index(0)
            indices = [at.get(i, filler) for i in range(block.rank)]
            output = block.outputs[0]
            store(value, self.buffers.buffer(output.value), output.shape, apply_map(output.map, indices))
            return
        indices = [at[i] for i in block.spatial]
        (after,) = self.tiled.epilogue
        env = dict(zip(after.index_arguments, indices, strict=True))
        for argument, operand in zip(after.input_arguments, after.inputs, strict=True):
            if operand.value == block.outputs[0].value:
                env[argument] = value
                continue
            buffer = self.buffers.buffer(operand.value)
            env[argument] = buffer if operand.is_opaque else read_operand(operand, buffer, indices, after.domain)
        for made, output in zip(clone_body(after, env), after.outputs, strict=True):
            store(made, self.buffers.buffer(output.value), output.shape, apply_map(output.map, indices))


def _sum(a: ir.Value, b: ir.Value) -> ir.Value:
    return Value(a) + b
