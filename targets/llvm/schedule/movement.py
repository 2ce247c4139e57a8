"""Operands whose unit stride is along another loop than the output's: tiles of them are transposed in registers.

A tile of n × n elements is loaded in n vectors along the operand's unit stride and transposed by n·log2(n) shuffles;
then each row of the output's tile is a vector, on which the rest of the body is computed as usual. Vectors of
low-precision elements hold more than n: tiles are then several adjacent squares, transposed by the same shuffles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.scalars import compare
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.blocks.space import BlockInstance, Space
from mirlo.passes.schedule.loops import either, every
from mirlo.passes.schedule.vectors import shuffle, splat
from mirlo.targets.llvm.choices import ElementwiseChoices, of_loop
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import can_mask, plus, work
from mirlo.targets.llvm.schedule.cost import (
    CLOSE_TO_L2,
    LINE_BYTES,
    MAX_PARTIAL_WORK,
    MAX_TRANSPOSED_ROWS,
    MAX_UNROLLED_OPERATIONS,
    MIN_TILES_TO_ALIGN,
    SHUFFLE_LANE_BYTES,
)
from mirlo.targets.llvm.schedule.tiles import (
    Cut,
    choose_blocks,
    low_blocks,
    no_blocks,
    visit,
    visit_line_pairs,
)


@dataclass(frozen=True)
class TransposedAccess:
    """A space whose last loops are `across`, the unit stride of some operands, and the output's unit stride."""

    space: Space
    arguments: tuple[tuple[BlockInstance, ir.Value], ...]
    """Body arguments that are transposed."""


def find_transposed(space: Space, made: set[ir.Value], machine: Machine) -> TransposedAccess | None:
    """Arrange the loops of a space for transposition, if an operand needs it and it pays."""
    last = len(space.extents) - 1
    if last < 1 or not can_mask(space.instances, machine) or work(space.instances) > MAX_UNROLLED_OPERATIONS:
        return None
    votes: dict[int, int] = {}
    for instance, _, operand in _mapped(space, made):
        across = _unit_stride_loop(instance, operand, last)
        if across is not None:
            votes[across] = votes.get(across, 0) + 1
    if not votes:
        return None
    across = max(votes, key=lambda axis: votes[axis])
    if not all(isinstance(space.extents[axis], int) for axis in (across, last)):
        return None
    arranged = space.order([*(a for a in range(last) if a != across), across, last])
    arguments = tuple(
        (instance, argument)
        for instance, argument, operand in _mapped(arranged, made)
        if _unit_stride_loop(instance, operand, last) == last - 1
    )
    return TransposedAccess(arranged, arguments)


def moved_bytes(space: Space, element_bytes: int) -> int:
    """Return the bytes that a space with one operand and one output moves, if its sizes are static."""
    return 2 * element_bytes * math.prod(extent for extent in space.extents if isinstance(extent, int))


def is_close(space: Space, element_bytes: int, machine: Machine) -> bool:
    """Return whether the data that a space moves is, at least in large part, in the L2 cache."""
    return moved_bytes(space, element_bytes) <= CLOSE_TO_L2 * machine.l2_bytes


def _mapped(space: Space, made: set[ir.Value]) -> list[tuple[BlockInstance, ir.Value, OperandView]]:
    """Return the mapped operands that are read from memory."""
    return [
        (instance, argument, operand)
        for instance in space.instances
        for argument, operand in instance.argument_operands.items()
        if operand.map is not None and operand.value not in made and operand in instance.needed_inputs
    ]


def _unit_stride_loop(instance: BlockInstance, operand: OperandView, last: int) -> int | None:
    """Return the loop along which an operand has unit stride, if it is not the last and the last one has a stride."""
    where = instance.flat(operand)
    step = where.coefficient(last)
    if step in (0, 1) or step is None or instance.always_outside(operand):
        return None
    return next((axis for axis in range(last) if where.coefficient(axis) == 1), None)


class TransposedSweep:
    """Emits all loops of a space, the last two in tiles.

    `part` is the number by which the tile may be chosen. Without memory it only chooses.
    """

    def __init__(
        self,
        transposed: TransposedAccess,
        memory: TensorBuffers | None,
        made: dict[ir.Value, tuple[BlockInstance, ir.Value]],
        stored: set[ir.Value],
        machine: Machine,
        chosen: ElementwiseChoices,
        part: int = 0,
    ):
        self.space = transposed.space
        self.arguments = transposed.arguments
        self.stored = stored
        self.last = len(self.space.extents) - 1
        self.along = LoopNestState(memory, self.last, made=made)
        self.across = LoopNestState(memory, self.last - 1)
        self.element_bytes = widest_bytes(self.space.instances, self.last)
        self.machine = machine
        rows, columns = self.space.extents[-2:]
        self.columns: int = _fitting(_shrink_to_extent(machine.lanes(self.element_bytes), columns), columns)
        self.rows: int = min(_fitting(min(MAX_TRANSPOSED_ROWS, machine.vector_registers // 2), rows), self.columns)
        self.is_crowded = self._maps_to_one_set()
        if self.is_crowded:
            self.rows //= 2
        self.columns = of_loop(chosen.transposed_columns, part) or self.columns
        self.rows = min(of_loop(chosen.transposed_rows, part) or self.rows, self.columns)
        self.streams = self._may_stream()

    def emit(self) -> None:
        every(self.space.extents[: self.last - 1], self._plane, parallel=True)

    def _plane(self, indices: list[ir.Value]) -> None:
        columns = Cut(self.space.extents[self.last], self.columns)
        rows = Cut(self.space.extents[self.last - 1], self.rows)
        if self.is_crowded:
            blocks = low_blocks(rows, columns, self.element_bytes)
        else:
            if rows.extent >= MIN_TILES_TO_ALIGN * self.rows and self._tiles_are_aligned():
                rows = Cut(rows.extent, rows.size, self._beyond())
            if self.streams:
                blocks = visit_line_pairs(rows, columns)
            elif moved_bytes(self.space, self.element_bytes) > self.machine.private_cache_bytes:
                blocks = no_blocks(rows, columns)
            else:
                blocks = choose_blocks(rows, columns, self.element_bytes, self._row_bytes(), self.machine.l1_set_stride)
        visit(rows, columns, blocks, lambda row, column: self._tile(indices, row, column), parallel=not indices)

    def _maps_to_one_set(self) -> bool:
        """Return whether lines of all rows map to one set of the L1 cache, which holds fewer than a tile has.

        Such tiles have half as many rows. That must not make the reads conflict as well: two tiles read parts of a
        line.
        """
        instance, argument = self.arguments[0]
        step = instance.flat(instance.argument_operands[argument]).coefficient(self.last)
        row_bytes, way = self._row_bytes(), self.machine.l1_set_stride
        if self.rows <= self.machine.l1_associativity or not row_bytes or not isinstance(step, int):
            return False
        return row_bytes % way == 0 and step * self.element_bytes % way != 0

    def _may_stream(self) -> bool:
        """Return whether tiles consist of whole lines of an output that exceeds the caches.

        Fetched before they are overwritten, they would cost half as much again. Whether the output is aligned to
        lines is known at run time.
        """
        outputs = self._outputs()
        if len(outputs) != 1 or self.is_crowded:
            return False
        instance, output = outputs[0]
        # By the output's element type, not the widest one: with a narrower output a tile has less than a line.
        if self.columns * element_bytes(output.value.type.element_type) != LINE_BYTES:
            return False
        where = instance.flat(output)
        steps = [where.constant, *(where.coefficient(axis) for axis in range(self.last))]
        whole = all(isinstance(step, int) and step % self.columns == 0 for step in steps)
        if not whole or where.coefficient(self.last) != 1:
            return False
        return moved_bytes(self.space, self.element_bytes) > self.machine.private_cache_bytes

    def _row_bytes(self) -> int | None:
        """Return the stride in bytes between the rows that a tile is stored to; None if it is dynamic."""
        steps = [instance.flat(output).coefficient(self.last - 1) for instance, output in self._outputs()[:1]]
        return steps[0] * self.element_bytes if steps and isinstance(steps[0], int) else None

    def _outputs(self) -> list[tuple[BlockInstance, OperandView]]:
        return [
            (instance, o) for instance in self.space.instances for o in instance.block.outputs if o.value in self.stored
        ]

    def _tiles_are_aligned(self) -> bool:
        """Return whether the lines of all tiles are aligned if one is."""
        where = [instance.flat(instance.argument_operands[argument]) for instance, argument in self.arguments[:1]]
        axes = [axis for axis in range(self.last + 1) if axis != self.last - 1]
        steps = [w.coefficient(axis) for w in where for axis in axes] + [w.constant for w in where]
        return all(isinstance(step, int) and step % self.rows == 0 for step in steps)

    def _beyond(self) -> Value:
        """Return the distance, in elements, of the operand's memory from the previous multiple of a tile's size.

        Arrays of callers may have any alignment, and a line of a tile that spans two cache lines is fetched twice.
        """
        kind = ir.IndexType.get()
        instance, argument = self.arguments[0]
        buffer = self.across.slot(instance.argument_operands[argument].value).buffer
        address = create("memref.extract_aligned_pointer_as_index", kind, buffer)
        elements = create("arith.divui", kind, address, index(element_bytes(buffer.type.element_type)))
        return create("arith.remui", kind, elements, index(self.rows))

    def _tile(
        self, indices: list[ir.Value], rows: tuple[int | ir.Value, int], columns: tuple[int | ir.Value, int]
    ) -> None:
        """Emit one tile: (start, count) along the loop across, and along the last."""
        lines: dict[ir.Value, list[ir.Value]] = {}
        for instance, argument in self.arguments:
            operand = instance.argument_operands[argument]
            read = [
                Iteration(self.across, [*indices, rows[0], plus(columns[0], c)], self.rows, rows[1]).read(
                    instance, operand
                )
                for c in range(columns[1])
            ]
            lines[argument] = transpose_tile([splat(line, self.rows) for line in read], self.columns)
        writes = []
        for r in range(rows[1]):
            given = {argument: line[r] for argument, line in lines.items()}
            at = [*indices, plus(rows[0], r), columns[0]]
            point = Iteration(self.along, at, self.columns, columns[1], given=given)
            for instance in self.space.instances:
                point.run(instance)
                for output, value in instance.results:
                    if output.value in self.stored:
                        writes.append((point, instance, output, point.find(value)))
        if not self.streams or columns[1] != self.columns:
            _write(writes)
            return
        either(
            self._is_line_aligned(writes[0][2]), lambda: _write(writes, past_caches=LINE_BYTES), lambda: _write(writes)
        )

    def _is_line_aligned(self, output: OperandView) -> Value:
        """Return whether an output is aligned to cache lines; arrays of callers may have any alignment."""
        kind = ir.IndexType.get()
        address = create("memref.extract_aligned_pointer_as_index", kind, self.along.slot(output.value).buffer)
        beyond = create("arith.andi", kind, address, index(LINE_BYTES - 1))
        return compare("eq", beyond, index(0))


def _write(writes: Sequence[tuple[Iteration, BlockInstance, OperandView, ir.Value]], past_caches: int = 0) -> None:
    for point, instance, output, value in writes:
        point.store(instance, output, value, past_caches)


def transpose_tile(lines: Sequence[ir.Value], columns: int) -> list[ir.Value]:
    """Transpose a tile: vector i of the result has lane i of each line, undefined where a line is missing.

    Lines shorter than those of the result are concatenated: the first of each square, the second of each. The
    shuffles are those of the hardware: two lines are interleaved within parts of 16 bytes, and whole parts are
    selected.
    """
    rows, element = lines[0].type.shape[0], lines[0].type.element_type
    missing = columns - len(lines)
    kind = ir.VectorType.get([rows], element)
    lines = [*lines, *([create("ub.poison", kind)] * missing if missing else [])]
    square = [_concatenate(lines[i::rows]) for i in range(rows)]
    part = min(rows, max(1, SHUFFLE_LANE_BYTES // element_bytes(element)))
    low, high = (_interleaved(columns, part, half) for half in (0, part // 2))
    for first in range(0, rows, part):
        group = square[first : first + part]
        # Interleaving the two halves of the lines log2(n) times transposes a part.
        for _ in range(part.bit_length() - 1):
            pairs = zip(group[: part // 2], group[part // 2 :], strict=True)
            group = [shuffle(a, b, pick) for a, b in pairs for pick in (low, high)]
        square[first : first + part] = group
    # Of the i-th line of each group: its parts p are adjacent in result p * part + i.
    even, odd = (_alternate_lanes(columns, rows, part, which) for which in (0, 1))
    result: dict[int, ir.Value] = {}
    for i in range(part):
        column = square[i::part]
        for _ in range((rows // part).bit_length() - 1):
            halves = [shuffle(a, b, even) for a, b in zip(column[::2], column[1::2], strict=True)]
            column = halves + [shuffle(a, b, odd) for a, b in zip(column[::2], column[1::2], strict=True)]
        for p, value in enumerate(column):
            result[p * part + i] = value
    return [result[row] for row in range(rows)]


def _concatenate(lines: Sequence[ir.Value]) -> ir.Value:
    """Concatenate vectors, a power of two of them."""
    while len(lines) > 1:
        together = list(range(2 * lines[0].type.shape[0]))
        lines = [shuffle(a, b, together) for a, b in zip(lines[::2], lines[1::2], strict=True)]
    return lines[0]


def _interleaved(lanes: int, part: int, start: int) -> list[int]:
    """Return the lanes that interleave two vectors within each part, from an offset in the part."""
    picked = (base + start + lane // 2 + lanes * (lane % 2) for base in range(0, lanes, part) for lane in range(part))
    return list(picked)


def _alternate_lanes(lanes: int, square: int, part: int, which: int) -> list[int]:
    """Return the lanes of the even or the odd parts of each square of two vectors, counted through both."""
    return [
        vector * lanes + base + p * part + lane
        for base in range(0, lanes, square)
        for vector in range(2)
        for p in range(which, square // part, 2)
        for lane in range(part)
    ]


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
