"""One register tile: sums carried through the reduction loops, then the elementwise blocks on them, then stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.vectors import lane_indices, splat, vector_body
from mirlo.targets.llvm.schedule.contraction.body import Factor, count_operations, emit_init
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor
from mirlo.targets.llvm.schedule.contraction.linear import Axis
from mirlo.targets.llvm.schedule.contraction.plan import Plan
from mirlo.targets.llvm.schedule.contraction.tiles import Piece, Span

ROLLED_FROM = 400
"""An epilogue of more operations than this, over all vectors of a tile, becomes a loop over the tile's rows."""


@dataclass(frozen=True)
class Places:
    """Where the kernel stands in each buffer."""

    rows: Cursor
    columns: Cursor
    writes: tuple[Cursor, ...]
    reads: tuple[tuple[Cursor | None, ...], ...]
    indices: tuple[tuple[Cursor, ...], ...]

    def map(self, move: Callable[[Cursor], Cursor]) -> Places:
        return Places(
            move(self.rows), move(self.columns), tuple(map(move, self.writes)),
            tuple(tuple(None if c is None else move(c) for c in group) for group in self.reads),
            tuple(tuple(map(move, group)) for group in self.indices),
        )  # fmt: skip

    def advance(self, axis: Axis, value: Any) -> Places:
        return self.map(lambda cursor: cursor.advance(axis, value))

    @staticmethod
    def start(code: Code, plan: Plan) -> Places:
        def at(form: Any) -> Cursor:
            return Cursor.start(code, form)

        return Places(
            at(plan.rows.form), at(plan.columns.form), tuple(map(at, plan.writes)),
            tuple(tuple(None if f is None else at(f) for f in group) for group in plan.reads),
            tuple(tuple(map(at, group)) for group in plan.indices),
        )  # fmt: skip


@dataclass
class Buffers:
    """The flat buffers that a tile reads and writes."""

    rows: Any
    columns: Any
    writes: list[Any]
    reads: list[list[Any]]


class Tile:
    """Emits tiles of a plan. `packed` says that the column operand is read from its panel."""

    def __init__(self, code: Code, plan: Plan, buffers: Buffers, packed: bool):
        self.code = code
        self.plan = plan
        self.buffers = buffers
        self.packed = packed
        self.row_lane_stride = plan.rows.form.stride(plan.lane_axis)
        self.column_lane_stride = 1 if packed else plan.columns.form.stride(plan.lane_axis)
        self.resident: dict[tuple[int, int], Any] = {}

    def keep_columns(self, columns: Cursor, cut: list[Piece]) -> None:
        """Load all vectors of a short column operand once, for the tiles that follow."""
        self.resident = {}
        if self.plan.unroll and self._row_stride(columns) == 0:
            for (_, shift), (p, piece) in product(self._taps(columns), enumerate(cut)):
                self.resident[shift, p] = self._column(columns, shift, piece)

    def emit(self, places: Places, rows: int, cut: list[Piece]) -> None:
        """A tile of so many rows whose vectors are `cut`."""
        start = emit_init(self.plan.contraction.block, self.plan.contraction.product.accumulate_type)
        sums = [self.code.splat_constant(piece.lanes, start) for _ in range(rows) for piece in cut]
        sums = self._reduce(self.plan.reduce, places.rows, places.columns, sums, rows, cut)
        self._finish(places, rows, cut, sums)

    def _reduce(
        self, axes: list[Axis], at_rows: Cursor, at_columns: Cursor, sums: list[Any], rows: int, cut: list[Piece]
    ) -> list[Any]:
        if self.plan.unroll:
            loaded: dict[Any, Any] = {}
            for row_shift, column_shift in self._taps(at_columns):
                sums = self._step(at_rows, at_columns, row_shift, column_shift, sums, rows, cut, loaded)
            return sums
        if not axes:
            return self._step(at_rows, at_columns, 0, 0, sums, rows, cut, {})
        axis, *inner = axes
        return self.code.loop(
            Span(0, axis.extent, 1),
            lambda i, *held: self._reduce(
                inner, at_rows.advance(axis, i), at_columns.advance(axis, i), list(held), rows, cut
            ),
            sums,
        )

    def _taps(self, columns: Cursor) -> list[tuple[int, int]]:
        """Shifts of the row and the column operand for each product of an unrolled sum."""
        axes = self.plan.reduce
        strides = [(self.plan.rows.form.stride(axis), columns.form.stride(axis)) for axis in axes]
        found = []
        for values in product(*(range(axis.extent) for axis in axes)):
            found.append((
                sum(v * s[0] for v, s in zip(values, strides, strict=True)),
                sum(v * s[1] for v, s in zip(values, strides, strict=True)),
            ))  # fmt: skip
        return found

    def _step(
        self, at_rows: Cursor, at_columns: Cursor, row_shift: int, column_shift: int, sums: list[Any], rows: int,
        cut: list[Piece], loaded: dict[Any, Any],
    ) -> list[Any]:  # fmt: skip
        """Add one product to each sum; `loaded` remembers what was read, by its offset."""
        row_stride = self._row_stride(at_rows)
        column_stride = self._row_stride(at_columns)
        following = list(sums)
        for r in range(rows):
            for p, piece in enumerate(cut):
                left = self._row(at_rows, row_shift + r * row_stride, piece, loaded)
                place = column_shift + r * column_stride
                right = self.resident.get((place, p))
                if right is None:
                    key = ("column", place, p)
                    if key not in loaded:
                        loaded[key] = self._column(at_columns, place, piece)
                    right = loaded[key]
                slot = r * len(cut) + p
                following[slot] = self._multiply_add(left, right, following[slot])
        return following

    def _row_stride(self, cursor: Cursor) -> int:
        axis = self.plan.row_axis
        return cursor.form.stride(axis) if axis is not None else 0

    def _row(self, at: Cursor, shift: int, piece: Piece, loaded: dict[Any, Any]) -> Any:
        """The row operand for one vector: an element for all lanes, or a vector of its own."""
        stride = self.row_lane_stride
        key = ("row", shift + piece.offset * stride, *((piece.lanes, piece.active) if stride else ()))
        if key not in loaded:
            loaded[key] = self._read(self.plan.rows.factor, self.buffers.rows, at, shift, stride, piece)
        if stride:
            return loaded[key]
        spread = (*key, piece.lanes)
        if spread not in loaded:
            loaded[spread] = splat(loaded[key], piece.lanes)
        return loaded[spread]

    def _column(self, at: Cursor, shift: int, piece: Piece) -> Any:
        if self.packed:
            return self.code.load_vector(self.buffers.columns, at.position(shift + piece.offset), piece, whole=True)
        stride = self.column_lane_stride
        made = self._read(self.plan.columns.factor, self.buffers.columns, at, shift, stride, piece)
        return splat(made, piece.lanes)

    def _read(self, factor: Factor, buffer: Any, at: Cursor, shift: int, stride: int, piece: Piece) -> Any:
        position = at.position(shift + piece.offset * stride)
        if stride == 0:
            element = self.code.load(buffer, position)
        elif stride == 1:
            element = self.code.load_vector(buffer, position, piece)
        else:
            element = self.code.load_strided(buffer, position, stride, piece)
        return self.converted(factor, element, piece.lanes)

    def converted(self, factor: Factor, element: Any, lanes: int) -> Any:
        """An element, or a vector of them, as what is multiplied."""
        return widened(factor.emit(element, lanes), self.plan.contraction.product.accumulate_type)

    def convert_columns(self, element: Any, lanes: int) -> Any:
        """An element of the column operand, or a vector of them, as what is multiplied."""
        return self.converted(self.plan.columns.factor, element, lanes)

    @staticmethod
    def _multiply_add(left: Any, right: Any, total: Any) -> Any:
        if isinstance(total.type.element_type, ir.FloatType):
            return create("vector.fma", total.type, left, right, total)
        return create("arith.addi", total.type, total, create("arith.muli", total.type, left, right))

    def _finish(self, places: Places, rows: int, cut: list[Piece], sums: list[Any]) -> None:
        blocks = [stage.block for stage in self.plan.contraction.stages]
        axis = self.plan.row_axis
        if axis is None or rows == 1 or count_operations(blocks) * len(sums) <= ROLLED_FROM:
            seen: dict[Any, Any] = {}
            for r in range(rows):
                here = places if axis is None else places.advance(axis, r)
                for p, piece in enumerate(cut):
                    self._finish_vector(here, piece, sums[r * len(cut) + p], seen)
            return
        width = sum(piece.lanes for piece in cut)
        kind = self.plan.contraction.product.accumulate_type
        held = self.code.scratch(self.plan.tile_rows * width, kind)
        for r in range(rows):
            for p, piece in enumerate(cut):
                position = self.code.index(r * width + piece.offset)
                self.code.store_vector(sums[r * len(cut) + p], held, position, piece, whole=True)

        def row(i: Any) -> None:
            here = places.advance(axis, i)
            line = self.code.scaled(i, width)
            for piece in cut:
                position = line if piece.offset == 0 else self.code.add(line, self.code.index(piece.offset))
                value = self.code.load_vector(held, position, piece, whole=True)
                self._finish_vector(here, piece, value, {})

        self.code.loop(Span(0, rows, 1), row)

    def _finish_vector(self, places: Places, piece: Piece, total: Any, seen: dict[Any, Any]) -> None:
        """The elementwise blocks on one vector of finished sums, and its stores."""
        contraction = self.plan.contraction
        result = contraction.block.outputs[0]
        values = {result.value: narrowed(total, result.element_type)}
        for s, stage in enumerate(contraction.stages):
            env: dict[Any, Any] = {}
            for argument, cursor in zip(stage.block.index_arguments, places.indices[s], strict=True):
                env[argument] = self._index(cursor, piece)
            for i, (argument, operand) in enumerate(zip(stage.block.input_arguments, stage.block.inputs, strict=True)):
                read = places.reads[s][i]
                if operand.value in values:
                    env[argument] = values[operand.value]
                elif read is None:
                    env[argument] = self.code.buffers.buffer(operand.value)
                else:
                    env[argument] = self._stage_read(self.buffers.reads[s][i], read, piece, seen)
            made = vector_body(stage.block, env, piece.lanes)
            values.update(zip((output.value for output in stage.block.outputs), made, strict=True))
        for (value, _), buffer, cursor in zip(contraction.writes, self.buffers.writes, places.writes, strict=True):
            stored = splat(values[value], piece.lanes)
            self.code.store_vector(stored, buffer, cursor.position(piece.offset), piece)

    def _index(self, cursor: Cursor, piece: Piece) -> Any:
        """The index of a stage's axis: one for the vector, or one per lane."""
        stride = cursor.form.stride(self.plan.lane_axis)
        if stride == 0:
            return cursor.position()
        first = cursor.position(piece.offset * stride)
        if stride == 1:
            return lane_indices(first, piece.lanes)
        steps = lane_indices(self.code.index(0), piece.lanes)
        scaled = create("arith.muli", steps.type, steps, splat(self.code.index(stride), piece.lanes))
        return create("arith.addi", steps.type, splat(first, piece.lanes), scaled)

    def _stage_read(self, buffer: Any, cursor: Cursor, piece: Piece, seen: dict[Any, Any]) -> Any:
        stride = cursor.form.stride(self.plan.lane_axis)
        key = (buffer, cursor.base, cursor.offset + piece.offset * stride, piece.lanes if stride else 0)
        if key not in seen:
            position = cursor.position(piece.offset * stride)
            if stride == 0:
                seen[key] = self.code.load(buffer, position)
            elif stride == 1:
                seen[key] = self.code.load_vector(buffer, position, piece)
            else:
                seen[key] = self.code.load_strided(buffer, position, stride, piece)
        return seen[key]


def widened(value: Any, kind: Any) -> Any:
    """A half-precision factor in the type of the sum; others are of that type already."""
    return _cast("arith.extf", value, kind)


def narrowed(value: Any, kind: Any) -> Any:
    """A sum in the element type of the result."""
    return _cast("arith.truncf", value, kind)


def _cast(name: str, value: Any, kind: Any) -> Any:
    is_vector = isinstance(value.type, ir.VectorType)
    wanted = ir.VectorType.get(list(value.type.shape), kind) if is_vector else kind
    return value if value.type == wanted else create(name, wanted, value)


def with_panel(places: Places, panel: Cursor) -> Places:
    """The same places, the column operand read from its packed panel."""
    return replace(places, columns=panel)
