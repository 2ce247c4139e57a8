"""Two contractions with row operations between them, a block of rows at a time: attention.

What the first contraction makes is read by the second one row by row, after reductions of each row. So all three are
computed for some rows before the next ones: scores and weights are kept for one block only, in the cache. The loops
outside of the blocks, over heads and batches, are shared; threads divide them, or the blocks where there are no others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.blocks.attention import find_attention
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.contraction.forms import Axis, Form
from mirlo.passes.schedule.blocks.evaluate import Memory
from mirlo.passes.schedule.blocks.group import Group
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.loops import for_loop
from mirlo.targets.llvm.schedule.contraction import ContractionPlan
from mirlo.targets.llvm.schedule.contraction.code import Code
from mirlo.targets.llvm.schedule.contraction.kernel import Kernel
from mirlo.targets.llvm.schedule.contraction.places import Places
from mirlo.targets.llvm.schedule.contraction.plan import Plan
from mirlo.targets.llvm.schedule.contraction.tiles import Piece, Span, spans
from mirlo.targets.llvm.schedule.group import whole_function
from mirlo.targets.llvm.schedule.rows import RowsPlan
from mirlo.targets.llvm.schedule.stages import plan_stages

_BLOCK = Axis(-3, 1, False)
"""Stands for the first row of a block."""
_FEWEST_BLOCKS = 8
"""Where blocks are all that threads can share, there are at least so many."""
_FEWEST_ROWS = 32
"""Of a block, where smaller ones would leave out more of the columns: of fewer rows the copies of panels count."""


@dataclass(frozen=True)
class _Part:
    """A contraction as it is done for a block of rows."""

    plan: Plan
    """Without loops over rows or columns but those of tiles; positions in values of the block count from its start."""
    outer: Mapping[int, tuple[Axis, int]]
    """The axes outside, by id, with the distance of their steps in rows."""
    row_axis: Axis | None


@dataclass(frozen=True)
class BlockedPlan:
    """How to compute two contractions, and the rows between them, block by block."""

    first: _Part
    rows: RowsPlan
    last: _Part
    loops: tuple[tuple[int, int], ...]
    """The shared loops outside of the blocks: the distance of their steps in rows, and their extents."""
    extent: int
    """Rows inside of these loops."""
    block: int
    local: tuple[Any, ...]
    """Values that are kept for a block only."""
    weights: Any
    width: int
    """Columns of the weights."""
    limit: tuple[int, int] | None = None
    """Row r needs no column from `limit[0] * r + limit[1]` on: what the mask hides is not computed."""

    def emit(self, memory: Memory) -> None:
        """Emit all blocks at the insertion point."""
        code = Code(memory)
        total = prod(extent for _, extent in self.loops) * self.extent
        for value in self.local:
            elements = prod(value.type.shape) // total * self.block
            memory.place(value, memory.buffers.scratch([elements], value.type.element_type))
        self._reuse_scores(memory)
        first, last = (_BlockKernel(part, memory) for part in (self.first, self.last))
        stored = self.rows.prepare(memory)
        heads = prod(extent for _, extent in self.loops)
        step = lcm(self.first.plan.tile_columns, *self.rows.steps(memory)) if self.limit is not None else 1

        def blocks(head: Any) -> None:
            indices = self._indices(head, code)
            for span in spans(self.extent, self.block):

                def one(start: Any, count: int = span.size) -> None:
                    needed = self._needed(code, start, count, step)
                    first.limit, last.tiles.limits = needed, {axis.id: needed for axis in self.last.plan.reduce}
                    first.run(indices, start, count, self.extent)
                    if self.rows.rows:
                        code.loop(Span(0, count, 1), lambda r: self.rows.emit_row(memory, stored, r, limit=needed))
                    else:
                        self.rows.emit_row(memory, stored)
                    last.run(indices, start, count, self.extent)

                code.loop(span, one, parallel=heads == 1)

        code.loop(Span(0, heads, 1), blocks, parallel=True)

    def describe(self) -> dict[str, Any]:
        return {
            "block": self.block,
            "tile": [self.first.plan.tile_rows, self.first.plan.tile_columns],
            "last_tile": [self.last.plan.tile_rows, self.last.plan.tile_columns],
            **({} if self.limit is None else {"hidden": True}),
        }

    def _needed(self, code: Code, start: Any, count: int, step: int) -> Any:
        """How many columns a block of rows needs, in whole steps; None where it needs all."""
        if self.limit is None:
            return None
        scale, beyond = self.limit
        if isinstance(start, int):
            needed = max(-(-(scale * (start + count - 1) + beyond) // step), 1) * step
            return None if needed >= self.width else code.index(needed)
        index = ir.IndexType.get()
        last = code.add(code.scaled(start, scale), code.index(scale * (count - 1) + beyond + step - 1))
        steps = create("arith.maxsi", index, create("arith.floordivsi", index, last, code.index(step)), code.index(1))
        return create("arith.minsi", index, code.scaled(steps, step), code.index(self.width))

    def _indices(self, head: Any, code: Code) -> dict[int, Any]:
        """The index of each shared loop, by the distance of its steps, from one that counts them all."""
        found: dict[int, Any] = {}
        below = 1
        index = ir.IndexType.get()
        for i, (stride, extent) in reversed(list(enumerate(self.loops))):
            if isinstance(head, int):
                found[stride] = head // below % extent
            else:
                value = head if below == 1 else create("arith.divui", index, head, code.index(below))
                found[stride] = value if i == 0 else create("arith.remui", index, value, code.index(extent))
            below *= extent
        return found

    def _reuse_scores(self, memory: Memory) -> None:
        """Let the weights take the place of the scores that they are computed from, the last time these are read."""
        target = self.rows.walk_of(self.weights)
        for value in self.local:
            if value == self.weights or value.type != self.weights.type or self.rows.walk_of(value) is not None:
                continue
            readers = [
                i for i, walk in enumerate(self.rows.walks)
                if any(operand.value == value for block in walk.blocks for operand in block.inputs)
            ]  # fmt: skip
            if target is not None and readers and max(readers) <= target:
                memory.share(self.weights, value)
                return


class _BlockKernel(Kernel):
    """A contraction that is emitted for blocks of rows, at places that loops outside of it have reached."""

    def __init__(self, part: _Part, memory: Memory):
        super().__init__(part.plan, memory)
        self.part = part
        self.rows_now = 1
        self.limit: Any = None
        """Where the columns end for these rows, an index; None for all."""
        self.prepare()

    def run(self, indices: Mapping[int, Any], start: Any, count: int, extent: int) -> None:
        """Emit so many rows from `start` on; `indices` are those of the shared loops."""
        places = Places.start(self.code, self.plan)
        for axis, stride in self.part.outer.values():
            for distance, index in indices.items():
                if stride <= distance < stride * axis.extent:
                    places = places.advance(axis, self._times(index, distance // stride))
        row_axis = self.part.row_axis
        if row_axis is not None:
            places = places.advance(_BLOCK, start)
            for distance, index in indices.items():
                if extent <= distance < row_axis.extent:
                    places = places.advance(_BLOCK, self._times(index, distance))
        self.rows_now = count
        self._panels(places, False)

    def _times(self, value: Any, factor: int) -> Any:
        return value * factor if isinstance(value, int) else self.code.scaled(value, factor)

    def _panels(self, places: Places, parallel: bool, columns: int | None = None) -> None:
        if self.limit is None:
            super()._panels(places, parallel, columns)
            return
        axis = self.plan.lane_axis
        assert isinstance(axis.extent, int)
        for span in spans(axis.extent, self.plan.tile_columns):
            cut = self.plan.cut(span.size)
            end = create("arith.minsi", self.limit.type, self.limit, self.code.index(span.stop))

            def panel(i: Any, cut: list[Piece] = cut) -> None:
                self._panel(places.advance(axis, i), cut, False)

            for_loop(span.start, end, span.size, panel)

    def row_spans(self) -> list[tuple[Span, bool]]:
        return [(span, False) for span in spans(self.rows_now, self.plan.tile_rows)]


def plan_blocked(view: Any, group: Group) -> BlockedPlan | Decline:
    """How to compute these blocks a block of rows at a time."""
    if sum(is_product(block) for block in group.blocks) != 2:
        return decline("not two contractions", contractions=sum(is_product(block) for block in group.blocks))
    if not all(isinstance(extent, int) for block in group.blocks for extent in block.domain):
        return decline("a block's size is known at run time only")
    found = plan_stages(view, group)
    if len(found) != 3:
        return decline("not a contraction, rows and a contraction", stages=len(found))
    first, rows, last = found
    is_chain = isinstance(first, ContractionPlan) and isinstance(rows, RowsPlan) and isinstance(last, ContractionPlan)
    if not is_chain or not isinstance(rows, RowsPlan):
        return decline("not a contraction, rows and a contraction")
    plans: list[Plan] = [stage.plan for stage in (first, last) if isinstance(stage, ContractionPlan)]
    weights = plans[1].rows.access.value
    made = {output.value for block in (*rows.group.blocks, *_blocks_of(plans[0])) for output in block.outputs}
    kept = {value for value, _ in plans[0].contraction.writes} | set(rows.group.kept)
    if weights not in rows.group.kept:
        return decline("the second contraction does not take its rows from what is between")
    if any(value in made for value in view.returned):
        return decline("what lies between the contractions is returned")
    if any(o.value not in made for block in rows.group.blocks for o in block.inputs):
        return decline("what lies between the contractions reads another tensor")
    width = weights.type.shape[-1]
    if len(rows.rows) > 1 or prod(rows.rows) != prod(weights.type.shape[:-1]):
        return decline("rows between the contractions are not one loop", loops=len(rows.rows))
    local = tuple(v for v in _in_order(plans[0], rows) if v in kept)
    units = [(plans[0], plans[0].writes[0]), (plans[1], plans[1].rows.form)]
    parts = []
    for plan, form in units:
        part = _part(plan, form, width, local)
        if isinstance(part, Decline):
            return part
        parts.append(part)
    return _leaving_out(_with_blocks(parts[0], rows, parts[1], width, local, weights), group)


def _blocks_of(plan: Plan) -> list[Any]:
    return [plan.contraction.block, *(stage.block for stage in plan.contraction.stages)]


def _in_order(plan: Plan, rows: RowsPlan) -> list[Any]:
    """Values of both, in the order in which they are made."""
    return [output.value for block in (*_blocks_of(plan), *rows.group.blocks) for output in block.outputs]


def _part(plan: Plan, unit: Form, width: int, local: Collection[Any]) -> _Part | Decline:
    """A plan for one block; `unit` is a position in rows of this width."""
    if plan.guards or plan.rows.edge is not None or plan.contraction.ragged is not None:
        return decline("a contraction reads beyond the edges of a tensor, or has unequal panels")
    if any(side.padded_shape is not None or side.is_converted for side in (plan.rows, plan.columns)):
        return decline("a contraction needs a copy of an operand")
    if plan.rows_first:
        return decline("a contraction does not share rows between columns")
    row_axis = plan.row_axis
    outer: dict[int, tuple[Axis, int]] = {}
    for axis in (*plan.column_loops, *plan.row_loops):
        stride, rest = divmod(unit.stride(axis), width)
        if rest or stride == 0:
            return decline("an axis of a contraction does not step by rows")
        outer[axis.id] = (axis, stride)
    if row_axis is not None and unit.stride(row_axis) != width:
        return decline("a tile's rows are not neighbours", step=unit.stride(row_axis))
    moved = _Mover(plan, row_axis, local, width)
    return _Part(
        replace(
            plan,
            rows=replace(plan.rows, form=moved.form(plan.rows.access.value, plan.rows.form)),
            columns=replace(plan.columns, form=moved.outside(plan.columns.form)),
            column_loops=[], row_loops=[], is_streamed=False,
            writes=[
                moved.form(value, form) for (value, _), form in zip(plan.contraction.writes, plan.writes, strict=True)
            ],
            reads=[
                [None if r is None or f is None else moved.form(r.value, f) for r, f in zip(s.reads, fs, strict=True)]
                for s, fs in zip(plan.contraction.stages, plan.reads, strict=True)
            ],
            indices=[[moved.outside(form) for form in forms] for forms in plan.indices],
        ),
        outer,
        row_axis,
    )  # fmt: skip


@dataclass(frozen=True)
class _Mover:
    """Positions as a block sees them."""

    plan: Plan
    row_axis: Axis | None
    local: Collection[Any]
    width: int

    def form(self, value: Any, form: Form) -> Form:
        if value not in self.local:
            return self.outside(form)
        rows = set() if self.row_axis is None else {self.row_axis.id}
        inside = rows | {self.plan.lane_axis.id} | {axis.id for axis in self.plan.reduce}
        return Form({axis: step for axis, step in form.terms.items() if axis in inside}, form.constant)

    def outside(self, form: Form) -> Form:
        """In a tensor that is there as a whole: the block's first row moves it."""
        step = 0 if self.row_axis is None else form.stride(self.row_axis)
        return Form({**form.terms, _BLOCK.id: step}, form.constant) if step else form


def _with_blocks(
    first: _Part, rows: RowsPlan, last: _Part, width: int, local: tuple[Any, ...], weights: Any
) -> BlockedPlan | Decline:
    total = prod(weights.type.shape[:-1])
    extents = [1 if part.row_axis is None else part.row_axis.extent for part in (first, last)]
    extent = min(extents)
    steps = {extent, *(stride for part in (first, last) for _, stride in part.outer.values())}
    for part in (first, last):
        steps |= {stride * axis.extent for axis, stride in part.outer.values()}
    steps |= set(extents)
    steps.add(total)
    ordered = sorted(step for step in steps if step >= extent)
    if any(large % small for small, large in zip(ordered, ordered[1:], strict=False)):
        return decline("the loops of the contractions do not fit into each other", steps=ordered)
    loops = tuple((small, large // small) for small, large in zip(ordered, ordered[1:], strict=False))[::-1]
    block = _block_rows(extent, width, prod(e for _, e in loops), first.plan, element_bytes(weights.type.element_type))
    return BlockedPlan(first, rows, last, loops, extent, block, local, weights, width)


def _leaving_out(plan: BlockedPlan | Decline, group: Group) -> BlockedPlan | Decline:
    """The plan without the columns that a mask hides from all rows of a block."""
    limit = None if isinstance(plan, Decline) else _limit(plan, group)
    if limit is None or isinstance(plan, Decline) or plan.extent < 4 * _FEWEST_ROWS:
        return plan
    tile = plan.first.plan.tile_rows
    smaller = -(-max(_FEWEST_ROWS, plan.extent // _FEWEST_BLOCKS) // tile) * tile
    is_chosen = plan.first.plan.machine.chosen.block_rows is not None
    return replace(plan, limit=limit, block=plan.block if is_chosen else min(plan.block, smaller))


def _limit(plan: BlockedPlan, group: Group) -> tuple[int, int] | None:
    """From which column on a row needs none: a factor of the row, and a number."""
    plans = (plan.first.plan, plan.last.plan)
    if any(p.dot or p.group is not None or p.unrolled for p in plans) or len(plan.last.plan.reduce) != 1:
        return None
    if not isinstance(plan.first.plan.lane_axis.extent, int) or plan.first.plan.lane_axis.extent != plan.width:
        return None
    found = find_attention(group)
    if isinstance(found, Decline) or found.key_loop < 1 or found.extents[found.key_loop - 1] != plan.extent:
        return None
    query = found.key_loop - 1
    limits = [bound.limit for bound in found.bounds if bound.limit.axes() <= {query} and not bound.limit.divisions]
    limit = next((limit for limit in limits if limit.coefficient(query) >= 0), None)
    return None if limit is None else (limit.coefficient(query), limit.constant + 1)


def _block_rows(extent: int, width: int, heads: int, plan: Plan, size: int) -> int:
    """Rows of a block: their scores fill a quarter of the second cache, whole tiles if they are several."""
    chosen = plan.machine.chosen.block_rows
    rows = chosen or max(1, plan.machine.l2_bytes // 4 // (width * size))
    if heads == 1 and chosen is None:
        rows = min(rows, -(-extent // _FEWEST_BLOCKS))
    if rows >= extent:
        return extent
    return max(rows // plan.tile_rows, 1) * plan.tile_rows


@schedule("any", target="llvm", priority=95)
def blocked(kernel: Any, context: Any) -> Any:
    """Two contractions and the rows between them, attention: a block of rows at a time."""
    group = whole_function(kernel, context)
    if isinstance(group, Decline):
        return group
    plan = plan_blocked(kernel.view, group)
    if isinstance(plan, Decline):
        return plan
    buffers = BufferFunction(kernel.view)
    return buffers.build(lambda: plan.emit(Memory(buffers)), {"rule": "blocked", **plan.describe()})
