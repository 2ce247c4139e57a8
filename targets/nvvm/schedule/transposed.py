"""Elementwise blocks with transposed reads: tiles are transposed in shared memory.

Both global reads and global writes are then coalesced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, elementwise_space
from mirlo.passes.schedule.blocks.space import BlockInstance, Space, computed_values, merge_all
from mirlo.passes.schedule.loops import when
from mirlo.targets.gpu.schedule.launch import Ids, barrier, launch, shared, split
from mirlo.targets.gpu.schedule.vector_access import load_vectors
from mirlo.targets.gpu.schedule.vectors import all_of

THREADS = 256
"""Threads per block."""
EDGES = (64, 32)
"""Tile extents; the first if there are enough blocks."""
SHORTEST = 16
"""Shortest loop that is tiled."""
BANK = 4
"""Bytes of a bank; tile rows are padded by it, so that a column hits different banks."""
MAX_UNROLLED_OPS = 600
"""Most operations per thread."""
MAX_SHARED_BYTES = 48 * 1024
"""Most bytes of tiles."""
MIN_BLOCKS = 256
"""Blocks that keep a device busy."""


TilePosition = tuple[Value, int]
"""A position in a tile: of the thread's first line, or its lane, and an offset from it."""
Values = dict[ir.Value, ir.Value]


@dataclass
class TransposePlan:
    """Elementwise blocks over one domain, with operands contiguous along another loop than the output."""

    name = "transposed"

    group: BlockGroup[LaneModel]
    space: Space
    along: int
    """The loop along which these operands are contiguous; the output is along the last one."""
    edge: int
    across: list[tuple[BlockInstance, ir.Value, OperandView]] = field(default_factory=list)
    """These operands, with their blocks and their names in the bodies."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        memory.touch(self.space.instances, self.group.kept)
        self.made = computed_values(self.space.instances)
        extents = self.space.extents
        last = len(extents) - 1
        self.memory = memory
        self.others = [axis for axis in range(last) if axis != self.along]
        self.grid = [
            *(extents[axis] for axis in self.others),
            *(-(-extents[a] // self.edge) for a in (self.along, last)),
        ]
        launch(prod(self.grid), THREADS, self._block)

    def _block(self, ids: Ids) -> None:
        *outer, down, across = split(ids.block, self.grid)
        line, lane = split(ids.thread, [THREADS // self.edge, self.edge])
        self.corner = (down * self.edge, across * self.edge)
        self.outer = outer
        tiles = [self._tile(operand) for _, _, operand in self.across]
        # Tile rows run along the last loop, so that adjacent elements of the operand are in one row.
        read = []
        for offset in self._offsets():
            point = self._point((lane, 0), (line, offset))
            read.append([point.read(instance, operand) for instance, _, operand in self.across])
        for offset, values in zip(self._offsets(), read, strict=True):
            for value, (tile, pitch) in zip(values, tiles, strict=True):
                memref.StoreOp(value, tile, [line * pitch + lane + offset * pitch])
        barrier()
        points = [self._transposed_point((line, offset), lane, tiles) for offset in self._offsets()]
        self._compute(points, [line + offset for offset in self._offsets()], lane)

    def _offsets(self) -> range:
        """Return the lines of a thread, from its first one on."""
        return range(0, self.edge, THREADS // self.edge)

    def _tile(self, operand: OperandView) -> tuple[Value, int]:
        pitch = self.edge + max(1, BANK // element_bytes(operand.element_type))
        return shared(self.edge * pitch, operand.element_type), pitch

    def _point(self, down: TilePosition, across: TilePosition, given: Values | None = None) -> Iteration:
        """Return the point of a tile position, clamped at edges."""
        extents = self.space.extents
        indices: list[Value | None] = [None] * len(extents)
        beyond: dict[int, int] = {}
        for axis, value in zip(self.others, self.outer, strict=True):
            indices[axis] = value
        for axis, corner, own in zip((self.along, len(extents) - 1), self.corner, (down, across), strict=True):
            at, offset = corner + own[0], own[1]
            if not D.is_multiple(extents[axis], self.edge):
                at = create("arith.minui", at.type, at + offset, index(extents[axis] - 1))
            else:
                beyond[axis] = offset  # one address for all lines
            indices[axis] = at
        return Iteration(LoopNestState(self.memory, None, self.made), indices, given=given, beyond=beyond)

    def _transposed_point(self, down: TilePosition, across: Value, tiles: list[tuple[Value, int]]) -> Iteration:
        """Return the point of a tile position, with the transposed operands as given values."""
        given = {}
        line, offset = down
        for (_, argument, _), (tile, pitch) in zip(self.across, tiles, strict=True):
            given[argument] = memref.LoadOp(tile, [across * pitch + line + offset]).result
        point = self._point(down, (across, 0), given)
        load_vectors([point], self.space.instances, len(self.space.extents) - 1)
        return point

    def _compute(self, points: list[Iteration], lines: list[ir.Value], lane: Value) -> None:
        for point in points:
            for instance in self.space.instances:
                point.run(instance)
        for point, line in zip(points, lines, strict=True):
            when(self._exists(line, lane), partial(self._store, point))

    def _store(self, point: Iteration) -> None:
        """Store the outputs of a point."""
        for instance in self.space.instances:
            point.store_results(instance, self.group.kept)

    def _exists(self, down: ir.Value, across: Value) -> Value | None:
        """Return whether a tile position is in bounds; None if all are."""
        extents = self.space.extents
        corners = zip((self.along, len(extents) - 1), self.corner, (down, across), strict=True)
        tests = ((axis, corner + own) for axis, corner, own in corners if not D.is_multiple(extents[axis], self.edge))
        return all_of(*(at.below(extents[axis]) for axis, at in tests))


def plan_transpose(group: BlockGroup[LaneModel]) -> TransposePlan | Decline:
    """Plan elementwise blocks with transposed reads."""
    if not any(map(_may_be_transposed, group.blocks)):
        return decline("no operand is contiguous along another loop")
    space = elementwise_space(group)
    if isinstance(space, Decline):
        return space
    last_instance = space.instances[-1]
    space = merge_all(space.order_by_stride(last_instance.flat(last_instance.block.outputs[0])), 0)
    extents, instances = space.extents, space.instances
    last = len(extents) - 1
    if last < 1 or extents[last] < SHORTEST:
        return decline("what is written has no long lines")
    outputs = [(instance, output) for instance in instances for output in instance.block.outputs]
    if any(instance.flat(output).coefficient(last) != 1 for instance, output in outputs):
        return decline("outputs are not all contiguous along the same loop")
    candidates = [(axis, _transposed_operands(space, axis)) for axis in range(last) if extents[axis] >= SHORTEST]
    along, across = max(candidates, key=lambda pair: len(pair[1]), default=(0, []))
    if not across:
        return decline("no operand is contiguous along another loop")
    for edge in EDGES:
        blocks = (
            prod(extents) // extents[last] // extents[along] * -(-extents[last] // edge) * -(-extents[along] // edge)
        )
        tiles = sum(edge * (edge + BANK) * element_bytes(operand.element_type) for _, _, operand in across)
        work = edge * edge // THREADS * (1 + count_operations([instance.block for instance in instances]))
        if tiles <= MAX_SHARED_BYTES and work <= MAX_UNROLLED_OPS and blocks >= MIN_BLOCKS:
            return TransposePlan(group, space, along, edge, across)
    return decline("there are few tiles, or much is done with their elements")


def _may_be_transposed(block: BlockView) -> bool:
    """Return whether an operand of a block may be contiguous along another axis than its results."""
    own = {_contiguous_axis(output) for output in block.outputs}
    return any(_contiguous_axis(operand) not in own for operand in block.inputs if operand.map is not None)


def _contiguous_axis(operand: OperandView) -> str:
    """Return the index of the last dim that has several elements, as text."""
    indices = zip(operand.map.results, operand.shape, strict=True)
    return str(next((index for index, size in reversed(list(indices)) if size != 1), ""))


def _transposed_operands(space: Space, axis: int) -> list[tuple[BlockInstance, ir.Value, OperandView]]:
    """Return the operands from memory that are contiguous along this loop."""
    produced = set(computed_values(space.instances))
    return [
        (instance, argument, operand)
        for instance in space.instances for argument, operand in instance.argument_operands.items()
        if operand.map is not None and operand.value not in produced and argument in instance.needed
        and not instance.outside_tests(operand) and not instance.always_outside(operand)
        and instance.flat(operand).coefficient(axis) == 1
        and instance.flat(operand).coefficient(len(space.extents) - 1) not in (0, 1, None)
    ]  # fmt: skip
