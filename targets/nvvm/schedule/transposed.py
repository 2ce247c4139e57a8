"""Elementwise blocks with transposed reads, as a schedule of primitives: tiles are transposed in shared memory.

Both global reads and global writes are then coalesced.
"""

from __future__ import annotations

from math import prod
from typing import Annotated

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rule_choices import Choice, choice_values
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.points import merge_points

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
TRANSPOSED = "transposed"
"""The name of the stages that these plans are."""


@dataclass(frozen=True)
class TransposedChoices:
    """Choices for elementwise blocks with transposed reads; None where the schedule chooses."""

    edge: Annotated[int | None, Choice((16, 32, 64), "rows and columns of a tile that is transposed")] = None


NO_TRANSPOSED_CHOICES = TransposedChoices()


def plan_transpose(
    group: BlockGroup[LaneModel], chosen: TransposedChoices = NO_TRANSPOSED_CHOICES
) -> PrimitivesPlan | Decline:
    """Plan elementwise blocks with transposed reads."""
    if not any(map(_may_be_transposed, group.blocks)):
        return decline("no operand is contiguous along another loop")
    merged = merge_points(group)
    if isinstance(merged, Decline):
        return merged
    s, block = merged
    loops = fuse_contiguous(s, block, s.loops(block))
    extents = [D.static_dim(s.extent(loop)) for loop in loops]
    if len(loops) < 2 or extents[-1] < SHORTEST:
        return decline("what is written has no long lines")
    instances = s.instances(block)
    if any(p.flat(output).coefficient(loops[-1]) != 1 for p in instances for output in p.block.outputs):
        return decline("outputs are not all contiguous along the same loop")
    computed = set(group.made)
    candidates = [
        (loop, _transposed_operands(instances, loop, loops[-1], computed))
        for loop, extent in zip(loops[:-1], extents, strict=False) if extent >= SHORTEST
    ]  # fmt: skip
    along, across = max(candidates, key=lambda pair: len(pair[1]), default=("", []))
    if not across:
        return decline("no operand is contiguous along another loop")
    lines = (extents[loops.index(along)], extents[-1])
    work = 1 + count_operations([instance.block for instance in instances])
    edge = chosen.edge or _edge(prod(extents) // prod(lines), lines, [operand for _, operand in across], work)
    if not edge:
        return decline("there are few tiles, or much is done with their elements")
    _arrange(s, block, [*(loop for loop in loops[:-1] if loop != along), along, loops[-1]], across, edge)
    return PrimitivesPlan(group, s, TRANSPOSED, choice_values(TransposedChoices(edge)))


def _edge(others: int, lines: tuple[int, int], across: list[OperandView], work: int) -> int:
    """Return the extent of tiles, of which there are enough; 0 for none."""
    for edge in EDGES:
        blocks = others * -(-lines[0] // edge) * -(-lines[1] // edge)
        tiles = sum(edge * (edge + BANK) * element_bytes(operand.element_type) for operand in across)
        is_short = edge * edge // THREADS * work <= MAX_UNROLLED_OPS
        if tiles <= MAX_SHARED_BYTES and is_short and blocks >= MIN_BLOCKS:
            return edge
    return 0


def _arrange(
    s: Schedule, block: str, loops: list[str], across: list[tuple[BlockInstance, OperandView]], edge: int
) -> None:
    """Copy tiles along the memory of these operands, and read them along that of the result."""
    s.reorder(*loops)
    *outer, along, last = loops
    down, line = s.split(along, (None, edge))
    right, lane = s.split(last, (None, edge))
    s.reorder(*outer, down, right, line, lane)
    copies = [
        s.cache_read(s.block_of(instance.block), s.buffer_of(operand.value), "shared", loops=(lane, line))
        for instance, operand in across
    ]
    # Threads that read tiles only may test each element: nothing that they read is far away.
    has_others = len({s.buffer_of(o.value) for p in s.instances(block) for o in p.needed_inputs}) > len(across)
    for copy, (_, operand) in zip(copies, across, strict=True):
        s.storage_align(copy, 0, edge, max(1, BANK // element_bytes(operand.element_type)))
    for each, row, element in [*((copy, *s.loops(copy)[-2:]) for copy in copies), (block, line, lane)]:
        if s.is_limited(each) and (each != block or has_others):
            s.clamp(each)
        step, thread = s.split(row, (None, THREADS // edge))
        s.reorder(thread, element, step)
        s.bind(thread, "threadIdx.y")
        s.bind(element, "threadIdx.x")
        s.unroll(step)
    # As one loop, the tile of an element would be quotients.
    s.bind(right, "blockIdx.x")
    s.bind(down, "blockIdx.y")
    if outer:
        s.bind(s.fuse(*outer) if len(outer) > 1 else outer[0], "blockIdx.z")


def _may_be_transposed(block: BlockView) -> bool:
    """Return whether an operand of a block may be contiguous along another axis than its results."""
    own = {_contiguous_axis(output) for output in block.outputs}
    return any(_contiguous_axis(operand) not in own for operand in block.inputs if operand.map is not None)


def _contiguous_axis(operand: OperandView) -> str:
    """Return the index of the last dim that has several elements, as text."""
    indices = zip(operand.map.results, operand.shape, strict=True)
    return str(next((index for index, size in reversed(list(indices)) if size != 1), ""))


def _transposed_operands(
    instances: list[BlockInstance], along: str, last: str, computed: set[ir.Value]
) -> list[tuple[BlockInstance, OperandView]]:
    """Return the operands from memory that are contiguous along this loop."""
    return [
        (instance, operand)
        for instance in instances for argument, operand in instance.argument_operands.items()
        if operand.map is not None and operand.value not in computed and argument in instance.needed
        and not instance.outside_tests(operand) and not instance.always_outside(operand)
        and instance.flat(operand).coefficient(along) == 1
        and instance.flat(operand).coefficient(last) not in (0, 1, None)
    ]  # fmt: skip


def is_transposed(stage: object) -> bool:
    """Return whether a stage transposes tiles."""
    return isinstance(stage, PrimitivesPlan) and stage.rule == TRANSPOSED
