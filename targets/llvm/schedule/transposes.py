"""Operands whose unit stride is along another loop than the output's: tiles of them are transposed in registers.

Caches fetch lines in pairs: the requested line, and soon after it the other line of the pair. A traversal along
either operand requests the second line of a pair of the other operand right away, before it has arrived, or long
after it was evicted. So two lines by two form a block, of which one diagonal is visited before the other:

1 3
4 2

The first two tiles request one line of each pair in both operands; when the other two are visited, all lines have
arrived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import ElementwiseChoices, of_loop
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.cost import (
    CLOSE_TO_L2,
    INTERLEAVED_BLOCK,
    INTERLEAVED_LOAD_DISTANCE,
    INTERLEAVED_VECTORS,
    LINE_BYTES,
    LINES_PER_FETCH,
    LOW_TILES,
    MAX_CROWDED_SETS,
    MAX_INTERLEAVED,
    MAX_PARTIAL_WORK,
    MAX_TRANSPOSED_ROWS,
    MAX_UNROLLED_OPERATIONS,
    MIN_TILES_TO_ALIGN,
)
from mirlo.targets.llvm.schedule.vector_loops import can_mask, work


def find_across(s: Schedule, block: str, group: BlockGroup[Machine]) -> str | None:
    """Return the loop along which operands have unit stride that need a transposition, if it pays."""
    loops = s.loops(block)
    if sum(s.extent(loop) != 1 for loop in loops) < 2:
        return None
    last = loops[-1]
    reads, _ = s.strides(block, last)
    if all(step in (0, 1, None) for step in reads):
        return None
    instances = s.instances(block)
    if not can_mask(instances, group.machine) or work(instances) > MAX_UNROLLED_OPERATIONS:
        return None
    votes: dict[str, int] = {}
    for instance, operand in mapped_operands(instances, group):
        across = _unit_stride_loop(instance, operand, loops)
        if across is not None:
            votes[across] = votes.get(across, 0) + 1
    across = max(votes, key=lambda loop: votes[loop]) if votes else None
    if across is None or not all(isinstance(s.extent(loop), int) for loop in (across, last)):
        return None
    return across


def mapped_operands(
    instances: Sequence[BlockInstance], group: BlockGroup[Machine]
) -> list[tuple[BlockInstance, OperandView]]:
    """Return the mapped operands that are read from memory."""
    computed = group.made
    return [
        (instance, operand)
        for instance in instances
        for operand in instance.needed_inputs
        if operand.map is not None and operand.value not in computed
    ]


def _unit_stride_loop(instance: BlockInstance, operand: OperandView, loops: Sequence[str]) -> str | None:
    """Return the loop along which an operand has unit stride, if it is not the last and the last one has a stride."""
    where = instance.flat(operand)
    step = where.coefficient(loops[-1])
    if step in (0, 1) or step is None or instance.always_outside(operand):
        return None
    return next((loop for loop in loops[:-1] if where.coefficient(loop) == 1), None)


def moved_bytes(s: Schedule, block: str, size: int) -> int:
    """Return the bytes that a nest with one operand and one output moves, if its sizes are static."""
    extents = [s.extent(loop) for loop in s.loops(block)]
    return 2 * size * math.prod(extent for extent in extents if isinstance(extent, int))


@dataclass(frozen=True)
class TileOrder:
    """The elements along both loops that are visited together, and those of one step of the diagonal; 0 for none."""

    first: int
    second: int
    step: int = 0


@dataclass(frozen=True)
class TileChoice:
    """A tile that is transposed in registers, and how tiles are visited."""

    rows: int
    columns: int
    order: TileOrder
    align: str = ""
    """The operand at whose lines tiles begin."""
    streams: bool = False
    """Whether results go past the caches."""


def choose_tile(
    s: Schedule, block: str, group: BlockGroup[Machine], chosen: ElementwiseChoices, number: int
) -> TileChoice:
    """Choose the tile of a nest whose last two loops are transposed, and the order of tiles."""
    loops, instances, machine = s.loops(block), s.instances(block), group.machine
    across, last = loops[-2:]
    row_extent, column_extent = s.extent(across), s.extent(last)
    assert isinstance(row_extent, int) and isinstance(column_extent, int), "tiles are of static loops"
    size = widest_bytes(instances, last)
    columns = _fitting(_shrink_to_extent(machine.lanes(size), column_extent), column_extent)
    rows = min(_fitting(min(MAX_TRANSPOSED_ROWS, machine.vector_registers // 2), row_extent), columns)
    instance, operand = next(
        (i, o) for i, o in mapped_operands(instances, group) if _unit_stride_loop(i, o, loops) == across
    )
    where = instance.flat(operand)
    outputs = [(i, o) for i in instances for o in i.block.outputs if o.value in group.kept]
    stride = outputs[0][0].flat(outputs[0][1]).coefficient(across) if outputs else None
    row_bytes = stride * size if isinstance(stride, int) else None
    way, step = machine.l1_set_stride, where.coefficient(last)
    # Lines of all rows of a tile map to one set of the L1 cache, which holds fewer than a tile has: such tiles have
    # half as many rows. That must not make the reads conflict as well: two tiles read parts of a line.
    is_crowded = False
    if rows > machine.l1_associativity and row_bytes and isinstance(step, int):
        is_crowded = row_bytes % way == 0 and step * size % way != 0
    rows = rows // 2 if is_crowded else rows
    columns = of_loop(chosen.transposed_columns, number) or columns
    rows = min(of_loop(chosen.transposed_rows, number) or rows, columns)
    moved = moved_bytes(s, block, size)
    streams = not is_crowded and _has_whole_lines(outputs, loops, columns) and moved > machine.private_cache_bytes
    align = ""
    if not is_crowded and row_extent >= MIN_TILES_TO_ALIGN * rows and s.may_repeat(across):
        steps = [where.coefficient(loop) for loop in loops if loop != across] + [where.constant]
        if all(isinstance(each, int) and each % rows == 0 for each in steps):
            align = s.buffer_of(operand.value)
    if is_crowded:
        order = TileOrder(max(rows, LINE_BYTES // size), LOW_TILES * columns)
    elif streams:
        order = TileOrder(LINES_PER_FETCH * rows, columns)
    elif moved > machine.private_cache_bytes:
        # Data beyond the caches is prefetched far ahead only for consecutive lines.
        order = TileOrder(rows, columns)
    else:
        main = -(-row_extent // rows) * rows + rows if align else row_extent // rows * rows
        order = _choose_blocks(rows, columns, main, column_extent // columns * columns, size, row_bytes, way)
    return TileChoice(rows, columns, order, align, streams)


def _has_whole_lines(outputs: Sequence[tuple[BlockInstance, OperandView]], loops: Sequence[str], columns: int) -> bool:
    """Return whether tiles consist of whole lines of the only output.

    Fetched before they are overwritten, they would cost half as much again. Whether the output is aligned to lines is
    known at run time.
    """
    if len(outputs) != 1:
        return False
    instance, output = outputs[0]
    # By the output's element type, not the widest one: with a narrower output a tile has less than a line.
    if columns * element_bytes(output.value.type.element_type) != LINE_BYTES:
        return False
    where = instance.flat(output)
    steps = [where.constant, *(where.coefficient(loop) for loop in loops[:-1])]
    whole = all(isinstance(step, int) and step % columns == 0 for step in steps)
    return whole and where.coefficient(loops[-1]) == 1


def _choose_blocks(
    rows: int, columns: int, main_rows: int, main_columns: int, size: int, row_bytes: Dim | None, way_bytes: int
) -> TileOrder:
    """Choose blocks of two lines by two, if there are as many.

    They have four lines along the output if its rows, at a stride of `row_bytes`, map to few sets of the L1 cache:
    lines `way_bytes` apart map to the same set.
    """
    line = max(rows, columns, LINE_BYTES // size)
    pair = LINES_PER_FETCH * line
    crowded = isinstance(row_bytes, int) and row_bytes * MAX_CROWDED_SETS % way_bytes == 0
    if main_rows < pair or main_columns < pair:
        # Tiles that read parts of the same lines follow each other.
        return TileOrder(rows if crowded else min(max(main_rows, rows), line), columns)
    return TileOrder(pair, 2 * pair if crowded and main_columns >= 2 * pair else pair, line)


def arrange_tiles(s: Schedule, block: str, tile: TileChoice) -> None:
    """Arrange the last two loops of a block in tiles."""
    *outer, across, last = s.loops(block)
    extent = s.extent(across)
    assert isinstance(extent, int), "tiles are of static loops"
    for loop in outer:
        s.parallel(loop)
    is_shared = not outer
    main = extent // tile.rows * tile.rows
    whole, *rest = s.partition(across, [main]) if not tile.align and 0 < main < extent else [across]
    if tile.align or main:
        _whole_rows(s, whole, last, tile, is_shared)
    else:
        rest = [whole]
    for part in rest:
        (block,) = s.blocks(part)
        last = s.loops(block)[-1]
        # One tile, of fewer rows.
        _, lines = s.split(part, (None, tile.rows))
        tiles, lanes = s.split(last, (None, tile.columns), tail="peel")
        s.reorder(tiles, lines, lanes)
        _transpose(s, block, lines, lanes, tile)
        if is_shared:
            s.parallel(tiles)


def _whole_rows(s: Schedule, across: str, last: str, tile: TileChoice, is_shared: bool) -> None:
    """Arrange the tiles that have all their rows: blocks of them, and beside each block tiles of fewer columns."""
    columns = s.extent(last)
    assert isinstance(columns, int), "tiles are of static loops"
    if tile.align:
        tiles, *inside = s.split(across, (None, tile.rows), align=tile.align)
    else:
        tiles, *inside = s.split(across, (None, tile.rows))
    count = tile.order.first // tile.rows
    blocks, *several = s.split(tiles, (None, count)) if count > 1 else [tiles]
    s.reorder(blocks, last, *several, *inside)
    if is_shared:
        s.parallel(blocks)
    main = columns // tile.columns * tile.columns
    parts = s.partition(last, [main]) if 0 < main < columns else [last]
    for part in parts:
        (block,) = s.blocks(part)
        loops = s.loops(block)
        inner = loops[loops.index(part) + 1 :]
        rows, inside = inner[: len(several)], inner[len(several) :]
        if part is parts[0] and main:
            _whole_tiles(s, block, part, rows, inside, tile, is_shared)
        else:
            # One tile, of fewer columns.
            _, lanes = s.split(part, (None, tile.columns))
            s.reorder(*rows, *inside, lanes)
            _transpose(s, block, inside[-1], lanes, tile)


def _whole_tiles(
    s: Schedule, block: str, part: str, rows: Sequence[str], inside: Sequence[str], tile: TileChoice, is_shared: bool
) -> None:
    """Arrange the whole tiles of a block of rows along its columns."""
    order = tile.order
    tiles, lanes = s.split(part, (None, tile.columns))
    count = order.second // tile.columns
    blocks, *columns = s.split(tiles, (None, count)) if count > 1 else [tiles]
    rows = list(rows)
    if order.step:
        row_step, column_step = order.step // tile.rows, order.step // tile.columns
        rows = s.split(rows[0], (None, row_step)) if row_step > 1 else rows
        columns = s.split(columns[0], (None, column_step)) if column_step > 1 else columns
        s.reorder(blocks, rows[0], columns[0], *rows[1:], *columns[1:], *inside, lanes)
        s.rotate(rows[0], columns[0])
    else:
        s.reorder(blocks, *rows, *columns, *inside, lanes)
    _transpose(s, block, inside[-1], lanes, tile)
    if is_shared:
        s.parallel(blocks)


def _transpose(s: Schedule, block: str, lines: str, lanes: str, tile: TileChoice) -> None:
    s.vectorize(lanes)
    s.transpose(lines)
    if tile.streams:
        s.stream(block)


def arrange_interleaved(s: Schedule, block: str, machine: Machine, chosen: ElementwiseChoices) -> bool:
    """Arrange a nest with two to four channels whose planes are separate in the operands; return whether it is one.

    Vectors are read along a plane, then interleaved. Images in channels-last order are an example: three vectors of
    channels become three vectors of the output.
    """
    *outer, pixels, channels = s.loops(block)
    extent, count = s.extent(pixels), s.extent(channels)
    assert isinstance(extent, int) and isinstance(count, int), "tiles are of static loops"
    along, step = s.strides(block, channels)[1], s.strides(block, pixels)[1]
    if not 2 <= count <= MAX_INTERLEAVED or set(along) != {1} or set(step) != {count}:
        return False
    instances = s.instances(block)
    size = widest_bytes(instances, pixels)
    lanes, factor = machine.lanes(size), chosen.unroll_of(0)
    together = [INTERLEAVED_VECTORS]
    if factor is not None or work(instances) > INTERLEAVED_VECTORS:
        together = [factor or 1]
    elif machine.vector_bytes >= LINE_BYTES and moved_bytes(s, block, size) <= CLOSE_TO_L2 * machine.l2_bytes:
        together = [INTERLEAVED_BLOCK, INTERLEAVED_VECTORS]
    ends = [extent // (lanes * vectors) * lanes * vectors for vectors in together]
    points = sorted({end for end in ends if 0 < end < extent})
    parts = s.partition(pixels, points) if points else [pixels]
    bounds = [0, *points, extent]
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        (block,) = s.blocks(part)
        channel = s.loops(block)[-1]
        vectors = next((n for n, end in zip(together, ends, strict=True) if low < end), -(-(high - low) // lanes))
        _interleave(s, part, channel, vectors, lanes, not outer)
    for loop in outer:
        s.parallel(loop)
    return True


def _interleave(s: Schedule, pixels: str, channels: str, vectors: int, lanes: int, is_shared: bool) -> None:
    steps, *several, pixel = s.split(pixels, (None, vectors, lanes) if vectors > 1 else (None, lanes))
    if vectors == INTERLEAVED_BLOCK:
        # Loads of a block are some vectors apart: adjacent lines are not requested back to back.
        several = s.split(several[0], (None, INTERLEAVED_LOAD_DISTANCE))[::-1]
    s.reorder(steps, *several, channels, pixel)
    for loop in several:
        s.unroll(loop)
    s.vectorize(pixel)
    s.transpose(channels)
    if is_shared:
        s.parallel(steps)


def _fitting(size: int, extent: int) -> int:
    """Halve the size while it still covers the extent."""
    while size > 2 and size // 2 >= extent:
        size //= 2
    return size


def _shrink_to_extent(size: int, extent: int) -> int:
    """Halve the size while whole tiles would compute far more than the extent."""
    sizes = [size]
    while sizes[-1] > MAX_TRANSPOSED_ROWS:
        sizes.append(sizes[-1] // 2)
    least = min(-(-extent // each) * each for each in sizes)
    return next(each for each in sizes if -(-extent // each) * each <= MAX_PARTIAL_WORK * least)
