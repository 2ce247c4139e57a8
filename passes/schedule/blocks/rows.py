"""Row operations: softmax, normalizations, reductions along the innermost axis.

The blocks share their leading axes, the rows. Within a row each block either computes elements or reduces all of
them. Scalars of a row stay in registers, and blocks over the same elements share a loop if none needs a result that
the loop reduces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, floor_divide, loop_index, number
from mirlo.dialects.tir.block import SPATIAL
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.combine import Reducer, reducer_of
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, opaque_of_group
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.blocks.lanes import fitting, widest_bytes
from mirlo.runtime.records import dataclass

_SHORTEST = 8
"""Reductions of fewer elements than this do not pay for vectors and the reduction of their lanes."""


@dataclass
class Walk:
    """Blocks that share one loop over a row."""

    own: tuple[int, ...]
    """Extents of the loops within a row."""
    blocks: list[BlockView] = field(default_factory=list)
    reductions: dict[int, Reducer] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    """The loops within a row, by their positions in `own`, outermost first."""
    extents: tuple[Dim, ...] = ()
    """Extents of the loops over rows and within a row; adjacent ones of a row are one where all accesses allow it."""
    instances: tuple[BlockInstance, ...] = ()
    """The blocks in these loops."""

    def place(self, rows: tuple[Dim, ...], loops: Sequence[Sequence[int]]) -> None:
        """Place the blocks over the rows, and over loops each of which is some of those in `own`, outermost first."""
        self.extents = (*rows, *(D.product([self.own[i] for i in together]) for together in loops))
        indices: dict[int, IndexExpr] = {}
        for position, together in enumerate(loops, len(rows)):
            rest = loop_index(position)
            for at, i in enumerate(together):
                inner = D.product([self.own[other] for other in together[at + 1 :]])
                indices[i] = rest if inner == 1 else floor_divide(rest, inner, self.extents)
                rest = rest - indices[i] * inner
        self.instances = tuple(self._placed(i, len(rows), indices) for i in range(len(self.blocks)))

    def _placed(self, position: int, rows: int, indices: Mapping[int, IndexExpr]) -> BlockInstance:
        block = self.blocks[position]
        own = iter(indices[i] for i in range(len(self.own)))
        where = [
            loop_index(axis) if axis < rows else next(own) if block.domain[axis] != 1 else number(0)
            for axis in range(block.rank)
        ]
        reducer = self.reductions.get(position)
        return BlockInstance(block, where, self.extents, None if reducer is None else reducer.contributions)


@dataclass
class RowGroup:
    """The loops of a group of row operations."""

    group: BlockGroup[Any]
    rows: tuple[Any, ...]
    walks: list[Walk]
    axes: int = 0
    """How many leading axes of each block are rows."""

    def walk_of(self, value: ir.Value) -> int | None:
        """Return the position of the loop that computes a value."""
        for i, walk in enumerate(self.walks):
            if any(output.value == value for block in walk.blocks for output in block.outputs):
                return i
        return None

    @property
    def in_step(self) -> bool:
        """Return whether all loops cover the same elements and read each other's results only elementwise."""
        start = len(self.rows)
        if len({walk.extents[start:] for walk in self.walks if len(walk.extents) > start}) > 1:
            return False
        for i, walk in enumerate(self.walks):
            for instance in walk.instances:
                for operand in instance.block.inputs:
                    source = self.walk_of(operand.value)
                    if source is None or source == i or not self._has_elements(self.walks[source], operand.value):
                        continue
                    written = _output_dims(self.walks[source], operand.value)
                    if operand.map is None or operand.outside is not None or instance.dims(operand) != written:
                        return False
        return True

    def _stored(self) -> set[ir.Value]:
        """Return the values that are stored.

        These are values with users outside of the group, and elements that a later loop reads.
        """
        return set(self.group.kept).union(*map(self.read_from_memory, range(len(self.walks))))

    def read_from_memory(self, position: int) -> set[ir.Value]:
        """Return the values that a loop reads of which an earlier one stores the elements."""
        reads = [operand.value for block in self.walks[position].blocks for operand in block.inputs]
        sources = ((value, self.walk_of(value)) for value in reads)
        return {
            value for value, i in sources
            if i is not None and i < position and self._has_elements(self.walks[i], value)
        }  # fmt: skip

    @staticmethod
    def _has_elements(walk: Walk, value: ir.Value) -> bool:
        """Return whether a value has several elements per row."""
        reduced = {o.value for i in walk.reductions for o in walk.blocks[i].outputs}
        return bool(walk.own) and value not in reduced

    def shared(self) -> dict[ir.Value, ir.Value]:
        """Return the elements of a row that may be stored in the memory of the row's result.

        They are read no later than it is written.
        """
        stored = self._stored()
        result_of: dict[ir.Value, ir.Value] = {}
        taken: set[ir.Value] = set()
        # In the order of the blocks: the order of a set of values differs from run to run.
        outputs = [output.value for block in self.group.blocks for output in block.outputs]
        kept = [value for value in outputs if value in self.group.kept]
        for value in (v for v in outputs if v in stored and v not in self.group.kept):
            for result in (r for r in kept if r not in taken):
                if self._can_share(value, result):
                    result_of[value] = result
                    taken.add(result)
                    break
        return result_of

    def _can_share(self, value: ir.Value, result: ir.Value) -> bool:
        """Return whether a stored value, which loops read after its own, may be stored in a result's memory."""
        target = self.walk_of(result)
        if target is None or result.type != value.type or not self._has_elements(self.walks[target], result):
            return False
        written = _output_dims(self.walks[target], result)
        for i, walk in enumerate(self.walks):
            for instance in walk.instances:
                for operand in instance.block.inputs:
                    if operand.value != value:
                        continue
                    if i > target or (i == target and instance.dims(operand) != written):
                        return False
        return True


def _output_dims(walk: Walk, value: ir.Value) -> tuple[IndexExpr, ...] | None:
    for instance in walk.instances:
        for output in instance.block.outputs:
            if output.value == value:
                return instance.dims(output)
    return None


@deciding
def find_rows(group: BlockGroup[LaneModel]) -> RowGroup | Decline:
    """Match the row operations of a group of blocks."""
    if not any(block.is_reduction for block in group.blocks):
        return decline("no block reduces")
    refusal = opaque_of_group(group)
    if refusal is not None:
        return refusal
    count = _row_axes(group)
    walks: list[Walk] = []
    for block in group.blocks:
        added = _add(walks, block, count)
        if added is not None:
            return added
    rows = group.blocks[0].domain[:count]
    for walk in walks:
        refusal = _place_walk(walk, rows, group)
        if refusal is not None:
            return refusal
    return RowGroup(group, rows, walks, count)


def _row_axes(group: BlockGroup[LaneModel]) -> int:
    """Return the number of leading row axes: spatial, the same in all blocks, and never combined with other axes."""
    first = group.blocks[0]
    count = min(len(block.spatial) for block in group.blocks)
    produced = group.made

    def fits(block: BlockView, count: int) -> bool:
        if block.axes[:count] != (SPATIAL,) * count or block.domain[:count] != first.domain[:count]:
            return False
        instance = _standing(block)
        row = instance.where[:count]
        inner = [operand for operand in block.inputs if operand.value in produced]
        return all(instance.dims(operand)[:count] == row for operand in (*inner, *block.outputs))

    while count and not all(fits(block, count) for block in group.blocks):
        count -= 1
    return count


def _add(walks: list[Walk], block: BlockView, rows: int) -> Decline | None:
    """Add a block to the last loop, or to a new one."""
    own = [i for i in range(rows, block.rank) if block.domain[i] != 1]
    kinds = {block.axes[i] for i in own}
    if len(kinds) > 1:
        return decline("a block both computes and reduces within a row", block=block.name)
    extents = tuple(block.domain[i] for i in own)
    reducer: Reducer | None = None
    if block.is_reduction:
        reducer = reducer_of(block)
        if reducer is None:
            return decline("a reduction combines by no single associative operation", block=block.name)
        if kinds == {SPATIAL}:
            return decline("a reduction over one element per output is elementwise", block=block.name)
    if not walks or not _joins(walks[-1], block, extents):
        walks.append(Walk(extents))
    walk = walks[-1]
    if reducer is not None:
        walk.reductions[len(walk.blocks)] = reducer
    walk.blocks.append(block)
    return None


def _joins(walk: Walk, block: BlockView, extents: tuple[Dim, ...]) -> bool:
    """Return whether a block fits a loop: the same elements, and no use of a value that the loop reduces."""
    if walk.own != extents:
        return False
    totals = {o.value for i in walk.reductions for o in walk.blocks[i].outputs}
    elements = {o.value: o for i, b in enumerate(walk.blocks) if i not in walk.reductions for o in b.outputs}
    instance = _standing(block)
    for operand in block.inputs:
        if operand.value in totals:
            return False
        if operand.value in elements and not _same_element(instance, operand, elements[operand.value]):
            return False
    return True


def _same_element(instance: BlockInstance, operand: OperandView, output: OperandView) -> bool:
    """Return whether an operand is read at the block's own element and was written in the order of the axes."""
    if any(str(e) != f"d{i}" for i, e in enumerate(output.map.results)):
        return False
    units = [size == 1 for size in output.shape]
    own = iter(dim for dim in instance.where if not dim.is_constant)
    return all(unit or dim == next(own, None) for dim, unit in zip(instance.dims(operand), units, strict=True))


def _standing(block: BlockView) -> BlockInstance:
    """Place a block with its own axes as loops, without those of extent 1."""
    where = [number(0) if size == 1 else loop_index(axis) for axis, size in enumerate(block.domain)]
    return BlockInstance(block, where, block.domain)


def _place_walk(walk: Walk, rows: tuple[Dim, ...], group: BlockGroup[LaneModel]) -> Decline | None:
    start = len(rows)
    walk.place(rows, [[i] for i in range(len(walk.own))])
    walk.order = tuple(_order(walk, start))
    if list(walk.order) != sorted(walk.order):
        walk.place(rows, [[i] for i in walk.order])
    _join_loops(walk, rows)
    if len(walk.extents) == start:
        return None
    return _require_profitable(walk, start, group) if walk.reductions else _elements_along(walk)


def _join_loops(walk: Walk, rows: tuple[Dim, ...]) -> None:
    """Place the blocks in as few loops as possible: adjacent ones are one if no access needs a division then."""
    loops = [[i] for i in walk.order]
    for at in range(len(loops) - 2, -1, -1):
        apart = walk.extents, walk.instances
        joined = [*loops[:at], [*loops[at], *loops[at + 1]], *loops[at + 2 :]]
        walk.place(rows, joined)
        if all(instance.simple() for instance in walk.instances):
            loops = joined
        else:
            walk.extents, walk.instances = apart


def _order(walk: Walk, start: int) -> list[int]:
    """Return the loops of a row by stride, the smallest innermost."""
    axes = range(start, len(walk.extents))
    if len(axes) < 2:
        return list(range(len(axes)))
    sizes = [
        (D.estimate_dim(D.product(o.shape)), [p.flat(o).estimated_step(a) for a in axes])
        for p in walk.instances for o in (*p.needed_inputs, *p.block.outputs) if o.map is not None
    ]  # fmt: skip
    outputs = [
        [p.flat(o).estimated_step(a) for a in axes]
        for p in walk.instances for o in p.block.outputs
        if all(p.flat(o).moves_along(a) for a in axes)
    ]  # fmt: skip
    steps = outputs[0] if outputs else max(sizes)[1] if sizes else [0] * len(axes)
    return sorted(range(len(axes)), key=lambda i: -steps[i])


def _require_profitable(walk: Walk, start: int, group: BlockGroup[LaneModel]) -> Decline | None:
    """Decline vector reductions with a stride, and groups of nothing but reductions that are too short."""
    axis, extent = len(walk.extents) - 1, walk.extents[-1]
    rows = D.estimate_dim(D.product(walk.extents[:start]))
    total = D.estimate_dim(D.product(walk.own))
    computes = any(not block.is_reduction and D.estimate_dim(D.product(block.domain)) > rows for block in group.blocks)
    if total < _SHORTEST and not computes:
        return decline("rows are too short for vectors", elements=total)
    inputs = [(p, o) for p in walk.instances for o in p.needed_inputs if o.map is not None]
    if inputs:
        instance, largest = max(inputs, key=lambda item: D.estimate_dim(D.product(item[1].shape)))
        step = instance.flat(largest).coefficient(axis)
        if step not in (0, 1):
            return decline("the reduction does not run along memory", block=instance.block.name, step=step)
    lanes = group.machine.lanes(widest_bytes(walk.instances, axis))
    if D.estimate_dim(extent) < lanes and any(_is_window(instance, operand, start) for instance, operand in inputs):
        return decline("windows are too small for vectors", elements=extent)
    if isinstance(extent, int) and fitting(lanes, extent) < min(lanes, 4) and not computes:
        return decline("the innermost loop of a row is too short for vectors", elements=extent)
    return _elements_along(walk)


def _is_window(instance: BlockInstance, operand: OperandView, start: int) -> bool:
    """Return whether a row axis and an inner axis occur in one dim of an operand."""
    return any(
        min(dim.variables(), default=start) < start <= max(dim.variables(), default=0) for dim in instance.dims(operand)
    )


def _elements_along(walk: Walk) -> Decline | None:
    """Decline elements of a row that are not written along the innermost loop."""
    axis = len(walk.extents) - 1
    for i, instance in enumerate(walk.instances):
        for output in () if i in walk.reductions else instance.block.outputs:
            step = instance.flat(output).coefficient(axis)
            if step != 1:
                return decline("an output is not written along memory", block=instance.block.name, step=step)
    return None
