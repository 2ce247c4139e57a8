"""The schedule primitive `transpose`: a tile of two loops, in memory along the outer one, in vectors along the inner.

A tile of n x n elements is loaded in n vectors along the operand's unit stride and transposed by n log2(n) shuffles;
then each row of the tile is a vector, on which the body is computed. Vectors of low-precision elements hold more than
n: tiles are then several adjacent squares, transposed by the same shuffles. Results of few rows are interleaved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.dialects.core.value import Value, create, emit_constant, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.primitives.contiguity import in_iterations, position_of
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.lane_access import EdgeTest
from mirlo.passes.schedule.primitives.lanes import LaneGuards, LoopLanes, StoreLanes, emit_streamed, mask_of_guards
from mirlo.passes.schedule.primitives.loops import set_kind
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.tree import (
    UNROLLED,
    VECTORIZED,
    BlockLeaf,
    BufferAccess,
    Guard,
    Loop,
    ScheduleError,
    Transposition,
    placed_at,
    reads_of,
)
from mirlo.passes.schedule.vectors import lane_mask, shuffle, splat
from mirlo.runtime.records import dataclass

MAX_INTERLEAVED_BYTES = 64
"""Most bytes of vectors that are interleaved as one, which a register has."""
SHUFFLE_LANE_BYTES = 16
"""Bytes of the parts of a wider vector within which shuffles move elements; they also move whole parts."""


def transpose(loop: Loop) -> None:
    """Transpose the elements of a loop and of the vectorized loop in it in registers."""
    inner = loop.body[0]
    if len(loop.body) > 1 or not isinstance(inner, Loop) or inner.kind != VECTORIZED:
        raise ScheduleError(f"transpose: expected '{loop.name}' around a vectorized loop and nothing else")
    leaf = inner.body[0]
    if len(inner.body) == 1 and isinstance(leaf, Loop):
        _require_groups(loop, inner, leaf)
        set_kind(loop, UNROLLED)
        loop.form = Transposition()
        return
    if len(inner.body) > 1 or not isinstance(leaf, BlockLeaf):
        raise ScheduleError(f"transpose: expected one block in '{inner.name}'")
    if leaf.is_reduction:
        raise ScheduleError(f"transpose: '{leaf.name}' is a reduction")
    rows, lanes = loop.extent, inner.extent
    if not isinstance(rows, int) or not isinstance(lanes, int):
        raise ScheduleError(f"transpose: '{loop.name}' has {rows} iterations, which only the run time knows")
    if not _are_interleaved(leaf, loop.name, rows, inner.name):
        read = [
            in_iterations(position_of(access, placed_at(access.at, at)), leaf)
            for access, at in reads_of(leaf)
            if not access.is_opaque
        ]
        if not any(is_across(each.coefficient(loop.name), each.coefficient(inner.name)) for each in read):
            raise ScheduleError(
                f"transpose: '{leaf.name}' reads nothing that is contiguous along '{loop.name}' and not along "
                f"'{inner.name}', and writes nothing of which '{loop.name}' is all that lies between two lanes"
            )
        if not is_square(rows, lanes):
            raise ScheduleError(
                f"transpose: a tile of {rows} x {lanes} elements, expected powers of two, and no more of '{loop.name}' "
                f"than of '{inner.name}'"
            )
    set_kind(loop, UNROLLED)
    loop.form = Transposition()


def _require_groups(loop: Loop, lanes: Loop, group: Loop) -> None:
    """Require that a copy moves groups of elements, contiguous in both buffers, as elements of 32 or 64 bits."""
    leaf = group.body[0]
    if len(group.body) > 1 or not isinstance(leaf, BlockLeaf) or leaf.view is not None or leaf.epilogue:
        raise ScheduleError(f"transpose: expected the copy of a group of elements in '{group.name}'")
    if not all(isinstance(each.extent, int) for each in (loop, lanes, group)):
        raise ScheduleError(f"transpose: '{loop.name}' has iterations that only the run time knows")
    rows, count, size = (D.static_dim(each.extent) for each in (loop, lanes, group))
    read, write = (
        in_iterations(position_of(access, leaf.place(access)), leaf) for access in (*leaf.reads, *leaf.writes)
    )
    names = (loop.name, lanes.name, group.name)
    is_read = [read.coefficient(name) for name in names[::2]] == [size, 1] and leaf.reads[0].outside is None
    is_written = [write.coefficient(name) for name in names[1:]] == [size, 1]
    bits = 8 * size * element_bytes(leaf.writes[0].buffer.element)
    if not (is_read and is_written and is_square(rows, count) and bits in (32, 64)):
        raise ScheduleError(
            f"transpose: expected groups of 32 or 64 bits in '{group.name}' that are next to each other along "
            f"'{loop.name}' in '{leaf.reads[0].buffer.name}', and along '{lanes.name}' in "
            f"'{leaf.writes[0].buffer.name}', of no more of '{loop.name}' than of '{lanes.name}'"
        )


@dataclass(frozen=True)
class TransposedGroups:
    """A tile of groups of elements, each of which is moved as one element."""

    loop: Loop
    lane_loop: Loop
    group: Loop
    leaf: BlockLeaf
    values: LoopValues
    placed: PlacedBuffers

    def emit(self, guards: Sequence[Guard]) -> bool:
        """Emit the elements that pass guards; return whether it is known which do."""
        elements = self._count(guards, {self.loop.name: self.group.extent, self.group.name: 1})
        lanes = self._count(guards, {self.lane_loop.name: 1})
        limited = sum(any(name in form.variables() for name in self._names) for form, _ in guards)
        if elements is None or lanes is None or limited != len(guards):
            return False
        self._emit(elements, lanes)
        return True

    @property
    def _names(self) -> tuple[str, str, str]:
        return self.loop.name, self.lane_loop.name, self.group.name

    def _count(self, guards: Sequence[Guard], steps: Mapping[str, Dim]) -> int | None:
        """Return how many elements along some loops pass guards; None if only the run time knows."""
        loops = {each.name: each for each in (self.loop, self.lane_loop, self.group)}
        count = D.static_dim(D.product([loops[name].extent for name in steps]))
        for form, bound in guards:
            if not form.variables() & set(steps):
                continue
            is_linear = {name: form.coefficient(name) for name in form.variables()} == dict(steps)
            if not is_linear or not isinstance(form.constant, int) or not isinstance(bound, int):
                return None
            count = min(count, bound - form.constant)
        return count if count > 0 else None

    def _emit(self, elements: int, lanes: int) -> None:
        size, rows = D.static_dim(self.group.extent), D.static_dim(self.loop.extent)
        count = D.static_dim(self.lane_loop.extent)
        source, target = self.leaf.reads[0], self.leaf.writes[0]
        element = source.buffer.element
        line, wide = (ir.VectorType.get([n * size], element) for n in (rows, count))
        bits = ir.IntegerType.get_signless(8 * size * element_bytes(element))
        lines = []
        for lane in range(lanes):
            memory, at = self._memory(source, 0, lane)
            if elements == rows * size:
                value: ir.Value = create("vector.load", line, memory, at)
            else:
                mask, zeros = lane_mask(rows * size, elements), emit_constant(0, line)
                value = create("vector.maskedload", line, memory, at, mask, zeros)
            lines.append(create("vector.bitcast", ir.VectorType.get([rows], bits), value))
        for row, value in enumerate(transpose_tile(lines, count)[: -(-elements // size)]):
            value = create("vector.bitcast", wide, value)
            memory, at = self._memory(target, row, 0)
            if lanes == count:
                ir.Operation.create("vector.store", operands=[value, memory, at])
            else:
                mask = lane_mask(count * size, lanes * size)
                ir.Operation.create("vector.maskedstore", operands=[memory, at, mask, value])

    def _memory(self, access: BufferAccess, row: int, lane: int) -> tuple[ir.Value, ir.Value]:
        inside = self.values.at({self.loop.name: row, self.lane_loop.name: lane, self.group.name: 0})
        where = in_iterations(self.placed.flat_index(access, self.leaf.at), self.leaf)
        return self.placed[access.buffer].flat, inside.emit(where)


def is_across(step: Dim | None, lane_step: Dim | None) -> bool:
    """Return whether an access with these strides along the loops of a tile is contiguous along the outer one."""
    return step == 1 and lane_step is not None and lane_step not in (0, 1)


def is_square(rows: int, lanes: int) -> bool:
    """Return whether a tile is one square, or several in a row, of a power of two."""
    return not rows & (rows - 1) and not lanes & (lanes - 1) and 2 <= rows <= lanes


def _are_interleaved(leaf: BlockLeaf, loop: str, rows: int, lane_loop: str) -> bool:
    """Return whether all results are contiguous over both loops of a tile."""
    written = [(access, leaf.place(access)) for access in leaf.writes if not access.is_held]
    for after in leaf.epilogue:
        axes = placed_at(after.at, leaf.at)
        written += [(access, placed_at(access.at, axes)) for access in after.writes if not access.is_held]
    positions = [in_iterations(position_of(access, at), leaf) for access, at in written]
    return all((each.coefficient(loop), each.coefficient(lane_loop)) == (1, rows) for each in positions)


def is_limited_by_one(guards: Sequence[Guard], loop: Loop, lane_loop: Loop) -> bool:
    """Return whether one guard limits the lanes of a tile, the same for all rows."""
    if len(guards) != 1:
        return False
    form, _ = guards[0]
    return form.coefficient(lane_loop.name) == 1 and loop.name not in form.variables() and not form.divisions


@dataclass(frozen=True)
class LaneLimit:
    """The lanes of a tile that exist, where only the run time knows how many."""

    last: Value
    """The last one, below zero if there is none: before the tile, there are others."""
    mask: LaneGuards

    @staticmethod
    def of(guard: Guard, loop: Loop, values: LoopValues) -> LaneLimit:
        """Emit the limit that a guard is."""
        form, bound = guard
        origin = form.replace({loop.name: number(0)})
        return LaneLimit(index(bound) - values.emit(origin) - 1, mask_of_guards([guard], loop, values))


@dataclass
class TransposedTile:
    """One tile: the elements that its rows read in vectors along the outer loop, and those that they write so."""

    loop: Loop
    lane_loop: Loop
    leaf: BlockLeaf
    values: LoopValues
    placed: PlacedBuffers
    rows: int
    """The rows that exist."""
    lanes: int
    """The elements of each that exist."""
    limit: LaneLimit | None = None
    """Where only the run time knows which of them do: the others are read at the last one, and not stored."""
    passed: frozenset[EdgeTest] = frozenset()
    """The tests of edges that all iterations pass."""
    lines: dict[tuple[int, tuple[IndexExpr, ...]], list[ir.Value] | None] = field(default_factory=dict, init=False)
    """The rows of operands that are transposed, None for others."""
    planes: dict[int, tuple[BufferAccess, list[IndexExpr], list[ir.Value]]] = field(default_factory=dict, init=False)
    """The rows of results that are interleaved, by their accesses."""

    def emit(self) -> None:
        """Emit all elements of the tile."""
        stores: list[StoreLanes] = []
        for row in range(self.rows):
            inside, memory = self.values.at({self.loop.name: row}), TileRow(self, row)
            active = LaneGuards(self.lanes) if self.limit is None else self.limit.mask
            LoopLanes(self.leaf, self.lane_loop, inside, self.placed, active, self.passed, stores, tile=memory).emit()
        if self.leaf.is_streamed and self.limit is None and self.lanes == self.lane_loop.extent:
            emit_streamed(stores, self.leaf, self.placed)
        else:
            for store in stores:
                store()
        for access, axes, rows in self.planes.values():
            self._store_interleaved(rows, access, axes)

    def read(self, access: BufferAccess, axes: list[IndexExpr], at: list[IndexExpr], row: int) -> ir.Value | None:
        """Return a row of an operand that is transposed; None if this one is not."""
        key = (id(access), tuple(at))
        if key not in self.lines:
            self.lines[key] = self._transposed(access, axes)
        lines = self.lines[key]
        return None if lines is None else lines[row]

    def write(self, value: ir.Value, access: BufferAccess, axes: list[IndexExpr]) -> bool:
        """Take a row of a result that is interleaved; return whether this one is."""
        if id(access) not in self.planes:
            if not self._is_interleaved(access, axes):
                return False
            self.planes[id(access)] = (access, axes, [])
        self.planes[id(access)][2].append(value)
        return True

    def _transposed(self, access: BufferAccess, axes: list[IndexExpr]) -> list[ir.Value] | None:
        where = self._where(access, axes)
        if not is_across(where.coefficient(self.loop.name), where.coefficient(self.lane_loop.name)):
            return None
        count, size = D.static_dim(self.loop.extent), D.static_dim(self.lane_loop.extent)
        if not is_square(count, size):
            return None
        active, lines = LaneGuards(self.rows), list[ir.Value]()
        if self.limit is not None:
            self.values.start(where)  # which all lanes share
        for lane in range(self.lanes):
            inside = self._values_at(lane)
            line = LoopLanes(self.leaf, self.loop, inside, self.placed, active, self.passed).read(access, axes)
            lines.append(splat(line, count))
        return transpose_tile(lines, size)

    def _values_at(self, lane: int) -> LoopValues:
        """Return the values at a lane; at the last one that exists if only the run time knows which do."""
        name, limit = self.lane_loop.name, self.limit
        if limit is None:
            return self.values.at({name: lane})
        return self.values.inside({name: limit.last.minimum(lane)})

    def _where(self, access: BufferAccess, axes: list[IndexExpr]) -> IndexExpr:
        where = self.placed.simplified(self.values.with_numbers(self.placed.flat_index(access, axes)))
        return in_iterations(where, self.leaf)

    def _store_interleaved(self, planes: Sequence[ir.Value], access: BufferAccess, axes: list[IndexExpr]) -> None:
        """Store the lanes of all rows as whole vectors."""
        buffer = self.placed[access.buffer].flat
        inside = self.values.at({self.loop.name: 0, self.lane_loop.name: 0})
        lanes, left = D.static_dim(self.lane_loop.extent), self.lanes * len(planes)
        whole = len(planes) * lanes * element_bytes(access.buffer.element)
        if whole <= MAX_INTERLEAVED_BYTES and not len(planes) & (len(planes) - 1) and self.lanes == lanes:
            stored = _interleave_pairs(planes)
            ir.Operation.create("vector.store", operands=[stored, buffer, inside.emit(self._where(access, axes))])
            return
        for i, vector in enumerate(interleave(planes)):
            at = inside.emit(self._where(access, axes) + i * lanes)
            if left >= lanes:
                ir.Operation.create("vector.store", operands=[vector, buffer, at])
            elif left > 0:
                ir.Operation.create("vector.maskedstore", operands=[buffer, at, lane_mask(lanes, left), vector])
            left -= lanes

    def _is_interleaved(self, access: BufferAccess, axes: list[IndexExpr]) -> bool:
        """Return whether a result of all rows and lanes is contiguous."""
        if self.limit is not None:
            return False
        where = self._where(access, axes)
        steps = where.coefficient(self.loop.name), where.coefficient(self.lane_loop.name)
        return self.rows == self.loop.extent and steps == (1, self.rows)


@dataclass(frozen=True)
class TileRow:
    """The memory of one row of a tile."""

    tile: TransposedTile
    row: int

    def read(self, access: BufferAccess, axes: list[IndexExpr], at: list[IndexExpr]) -> ir.Value | None:
        """Return the elements that the lanes read of an operand that is transposed."""
        return self.tile.read(access, axes, at, self.row)

    def write(self, value: ir.Value, access: BufferAccess, axes: list[IndexExpr]) -> bool:
        """Take the elements that the lanes write of a result that is interleaved."""
        return self.tile.write(value, access, axes)


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


def _interleave_pairs(vectors: Sequence[ir.Value]) -> ir.Value:
    """Interleave a power of two of vectors as one, two by two."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        kind = ir.VectorType.get([2 * vectors[0].type.shape[0]], vectors[0].type.element_type)
        vectors = [create("vector.interleave", kind, vectors[i], vectors[i + half]) for i in range(half)]
    return vectors[0]


def interleave(vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Interleave vectors: the first lanes of all vectors, then the second ones, in as many vectors."""
    count, lanes = len(vectors), vectors[0].type.shape[0]
    interleaved = []
    for i in range(count):
        sources = [divmod(i * lanes + lane, count) for lane in range(lanes)]
        # Each vector is merged with the lanes collected so far.
        result = vectors[0]
        for c in range(1, count):
            here = [lanes + at if channel == c else lane for lane, (at, channel) in enumerate(sources)]
            if c == 1:
                here = [at if channel == 0 else pick for (at, channel), pick in zip(sources, here, strict=True)]
            result = shuffle(result, vectors[c], here)
        interleaved.append(result)
    return interleaved
