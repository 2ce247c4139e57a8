"""Tiles of dot-product instructions, which add several products to each lane, and their panels.

A group is 32 bits of elements that are adjacent along K: four int8, two int16 or two bf16. One group of a row is
broadcast to all lanes and multiplied with the groups of as many columns, which are contiguous in the panel. For
instructions that multiply matrices it is 64 bits: two rows and two columns make an accumulator of 2 x 2.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.loops import loop_over_tiles
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.transposed import transpose_tile
from mirlo.passes.schedule.primitives.vector_memory import OperandPositions, Piece, Position
from mirlo.passes.schedule.vectors import is_vector, shuffle
from mirlo.targets.llvm.intrinsics.arm import DOTS, call_arm_dot, call_matrices
from mirlo.targets.llvm.intrinsics.x86 import call_dot
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.packing import PanelCopy
from mirlo.targets.llvm.schedule.contraction.tile import Extent, Tiles
from mirlo.targets.llvm.schedule.contraction.tiles import tile_ranges

SIGN = -128
"""The sign bit of an int8."""


class GroupedTiles(Tiles):
    """Tiles of rows x vectors accumulators; a k-step adds one group of products to each."""

    @property
    def group(self) -> DotGroup:
        assert self.plan.group is not None
        return self.plan.group

    def emit(self, values: LoopValues, extent: Extent) -> None:
        """Emit a tile: accumulators, epilogue, stores."""
        values = values.at({})
        kind = self.plan.contraction.product.accumulate_type
        start = emit_init(self.plan.contraction.block, kind)
        count = extent.rows * len(extent.cut)
        sums = [self.constants.splat(piece.lanes, start) for _ in range(extent.rows) for piece in extent.cut]
        if self.group.flips:
            sums += [self.zeros(piece.lanes, kind) for piece in extent.cut]
        sums = self._reduce(self.plan.reduce, self.operands(values), sums, extent, values)
        extra = sums[count:]
        if extra:
            sums = [
                create("arith.subi", total.type, total, extra[i % len(extra)]) for i, total in enumerate(sums[:count])
            ]
        self.epilogue.finish(values, extent.rows, extent.cut, sums)

    def _reduce(
        self,
        axes: list[LoopAxis],
        operands: OperandPositions,
        sums: list[ir.Value],
        extent: Extent,
        values: LoopValues,
    ) -> list[ir.Value]:
        if not axes:
            return self._add(operands, sums, extent)
        if len(axes) > 1:
            return super()._reduce(axes, operands, sums, extent, values)
        axis = axes[0]
        if axis.extent:
            sums = loop_over_tiles(
                0, axis.extent, 1, lambda i, *held: self._add(self.inside(operands, axis, i), list(held), extent), sums
            )
        if self.group.tail:
            sums = self._add(self.inside(operands, axis, axis.extent), sums, extent, self.group.tail)
        return sums

    def _add(
        self, places: OperandPositions, sums: list[ir.Value], extent: Extent, active: int | None = None
    ) -> list[ir.Value]:
        """Add a group of products to each accumulator; `active` products if the group is partial."""
        group, following = self.group, list(sums)
        self.prefetch(places)
        columns = [self._groups_of_columns(places.columns, piece) for piece in extent.cut]
        stride = self.row_stride(places.rows)
        for r in range(extent.rows):
            row = self._group_of_row(places.rows, r * stride, active or group.size)
            for p, piece in enumerate(extent.cut):
                slot = r * len(extent.cut) + p
                following[slot] = self._dot(following[slot], self._spread(row, piece.lanes), columns[p])
        if group.flips:
            byte = ir.IntegerAttr.get(ir.IntegerType.get_signless(8), SIGN)
            for p, piece in enumerate(extent.cut):
                slot = extent.rows * len(extent.cut) + p
                signs = self.constants.splat(piece.lanes * group.size, byte)
                following[slot] = self._dot(following[slot], signs, columns[p])
        return following

    def _dot(self, total: ir.Value, row: ir.Value, columns: ir.Value) -> ir.Value:
        # The unsigned operand comes first, if the instruction distinguishes them.
        first, second = (columns, row) if self.group.unsigned_columns else (row, columns)
        if self.group.instruction == "vpmaddubsw":
            pairs = call_dot("vpmaddubsw", total, first, second)
            one = ir.IntegerAttr.get(pairs.type.element_type, 1)
            return call_dot("vpmaddwd", total, pairs, self.constants.splat(pairs.type.shape[0], one))
        call = call_arm_dot if self.group.instruction in DOTS else call_dot
        return call(self.group.instruction, total, first, second)

    def _groups_of_columns(self, at: Position, piece: Piece) -> ir.Value:
        lanes = piece.lanes * self.group.size
        position = self.at(at, piece.offset * self.group.size)
        value = self.load(self.buffers.columns, position, Piece(0, lanes, lanes))
        return widened_bytes(value, self.group.unsigned_columns) if self.group.widens else value

    def _group_of_row(self, at: Position, shift: Dim, active: int) -> ir.Value:
        """Load a group of a row as an i32; missing elements are zero."""
        value = self._elements_of_row(at, shift, active)
        bits = ir.VectorType.get([1], ir.IntegerType.get_signless(32))
        first = ir.DenseI64ArrayAttr.get([0])
        return create("vector.extract", bits.element_type, create("vector.bitcast", bits, value), static_position=first)

    def _elements_of_row(self, at: Position, shift: Dim, active: int) -> ir.Value:
        """Load a group of a row as the instruction takes it; missing elements are zero."""
        size, buffer = self.group.size, self.buffers.rows
        if active == size:
            value = self.load(buffer, self.at(at, shift), Piece(0, size, size))
        else:
            value = self.zeros(size, buffer.type.element_type)
            for i in range(active):
                element = create("memref.load", buffer.type.element_type, buffer, self.at(at, shift + i))
                place = ir.DenseI64ArrayAttr.get([i])
                value = create("vector.insert", value.type, element, value, static_position=place)
        return value if self.plan.rows.is_converted else prepared_rows(self.group, value)

    def _spread(self, row: ir.Value, lanes: int) -> ir.Value:
        bits = create("vector.broadcast", ir.VectorType.get([lanes], row.type), row)
        element = ir.IntegerType.get_signless(16) if self.group.widens else self.buffers.rows.type.element_type
        return create("vector.bitcast", ir.VectorType.get([lanes * self.group.size], element), bits)


class MatrixTiles(GroupedTiles):
    """Tiles of accumulators of 2 rows x 2 columns; a k-step adds the products of two groups and two groups."""

    def emit(self, values: LoopValues, extent: Extent) -> None:
        """Emit a tile: accumulators, their rows, epilogue, stores."""
        values = values.at({})
        kind = self.plan.contraction.product.accumulate_type
        start = emit_init(self.plan.contraction.block, kind)
        pairs = [pair for _ in range(-(-extent.rows // 2)) for piece in extent.cut for pair in _pairs(piece)]
        sums = [self.constants.splat(4, start) for _ in pairs]
        sums = self._reduce(self.plan.reduce, self.operands(values), sums, extent, values)
        self.epilogue.finish(values, extent.rows, extent.cut, self._rows_of(sums, extent))

    def _rows_of(self, sums: list[ir.Value], extent: Extent) -> list[ir.Value]:
        """Return the lanes of each row and vector of columns."""
        rows = []
        per_rows = sum(len(_pairs(piece)) for piece in extent.cut)
        for r in range(extent.rows):
            at = r // 2 * per_rows
            for piece in extent.cut:
                count = len(_pairs(piece))
                # Of a matrix whose operands were exchanged the columns are those of the result.
                lanes = [r % 2, r % 2 + 2] if self._is_exchanged else [2 * (r % 2), 2 * (r % 2) + 1]
                parts, at = sums[at : at + count], at + count
                if count == 1:
                    rows.append(shuffle(parts[0], parts[0], lanes[: piece.lanes]))
                else:
                    rows.append(shuffle(parts[0], parts[1], [*lanes, *(lane + 4 for lane in lanes)]))
        return rows

    @property
    def _is_exchanged(self) -> bool:
        # `usmmla` takes the unsigned operand first.
        return self.group.unsigned_columns and not self.group.unsigned_rows

    def _add(
        self, places: OperandPositions, sums: list[ir.Value], extent: Extent, active: int | None = None
    ) -> list[ir.Value]:
        group = self.group
        following: list[ir.Value] = []
        self.prefetch(places)
        columns = [pair for piece in extent.cut for pair in self._column_pairs(places.columns, piece)]
        stride = self.row_stride(places.rows)
        each = list(range(2 * group.size))
        for r in range(0, extent.rows, 2):
            first = self._elements_of_row(places.rows, r * stride, active or group.size)
            second = first
            if r + 1 < extent.rows:
                second = self._elements_of_row(places.rows, (r + 1) * stride, active or group.size)
            rows = shuffle(first, second, each)
            for pair in columns:
                total = sums[len(following)]
                operands = (pair, rows) if self._is_exchanged else (rows, pair)
                following.append(call_matrices(group.instruction, total, *operands))
        return following

    def _column_pairs(self, at: Position, piece: Piece) -> list[ir.Value]:
        """Load the groups of two columns each; of a single column twice."""
        size = self.group.size
        if piece.lanes == 1:
            value = self._groups_of_columns(at, piece)
            return [shuffle(value, value, [*range(size), *range(size)])]
        pairs = (Piece(piece.offset + first, 2, 2) for first in _pairs(piece))
        return [self._groups_of_columns(at, pair) for pair in pairs]


def _pairs(piece: Piece) -> range:
    """Return the first column of each pair."""
    return range(0, piece.lanes, 2)


def prepared_rows(group: DotGroup, value: ir.Value) -> ir.Value:
    """Convert an element of the rows, or a vector of them, to the operand type of the instruction."""
    if group.widens:
        return widened_bytes(value, group.unsigned_rows)
    return flipped(value) if group.flips else value


def widened_bytes(value: ir.Value, is_unsigned: bool) -> ir.Value:
    """Extend int8 to int16; int16 is returned as it is."""
    word = ir.IntegerType.get_signless(16)
    kind = ir.VectorType.get(list(value.type.shape), word) if is_vector(value) else word
    return value if value.type == kind else create("arith.extui" if is_unsigned else "arith.extsi", kind, value)


def flipped(value: ir.Value) -> ir.Value:
    """Flip the sign bit of int8 elements."""
    return create("arith.xori", value.type, value, emit_constant(SIGN, value.type))


class GroupedPanelCopy(PanelCopy):
    """Packs a panel so that, for each group along K, the elements of a column are contiguous."""

    @property
    def group(self) -> DotGroup:
        assert self.plan.group is not None
        return self.plan.group

    def _level(self, axes: list[LoopAxis], read: Position, write: Position, cut: list[Piece]) -> None:
        if len(axes) > 1:
            self._loop(axes, read, write, cut)
            return
        (axis,) = axes
        if self.group.step == 1 and self.stride != 1:
            for piece in cut:
                self._transpose_groups(axis, read.shift(piece.offset * self.stride), write, piece)
            return
        whole = axis.extent - (1 if self.group.tail else 0)
        if whole:
            loop_over_tiles(
                0, whole, 1,
                lambda i: self._interleave(
                    self.moved(read, axis.id, i), self.moved(write, axis.id, i), cut, self.group.size
                ),
            )  # fmt: skip
        if self.group.tail:
            self._interleave(self.moved(read, axis.id, whole), self.moved(write, axis.id, whole), cut, self.group.tail)

    def _interleave(self, read: Position, write: Position, cut: list[Piece], active: int) -> None:
        """Interleave a group of rows of the operand."""
        element, size = self.source.type.element_type, self.group.size
        for piece in cut:
            lines = [
                self.load_lanes(
                    self.source, self.at(read, i * self.group.step + piece.offset * self.stride), self.stride, piece
                )
                for i in range(active)
            ]
            lines += [self.zeros(piece.lanes, element)] * (size - active)
            while len(lines) > 1:
                half = len(lines) // 2
                lines = [_interleaved(lines[i], lines[i + half]) for i in range(half)]
            self._put(lines[0], write, piece)

    def _transpose_groups(self, axis: LoopAxis, read: Position, write: Position, piece: Piece) -> None:
        """Pack columns that are contiguous along K: transpose squares of groups in registers."""
        size = self.group.size
        lanes = piece.lanes * size
        element = self.source.type.element_type
        bits = ir.VectorType.get([piece.lanes], ir.IntegerType.get_signless(size * element.width))
        kind = ir.VectorType.get([lanes], element)
        elements = axis.extent * size - ((size - self.group.tail) if self.group.tail else 0)
        columns = piece.active if isinstance(piece.active, int) else piece.lanes

        def square(k: int | ir.Value, count: int, active: int) -> None:
            at, to = self.moved(read, axis.id, k), self.moved(write, axis.id, k)
            lines = [
                self.load(self.source, self.at(at, c * self.stride), Piece(0, lanes, active)) for c in range(columns)
            ]
            transposed = transpose_tile([create("vector.bitcast", bits, line) for line in lines], piece.lanes)
            for i, row in enumerate(transposed[:count]):
                value = create("vector.bitcast", kind, row)
                self._put(value, to.shift(i * write.step(axis.id)), piece)

        whole = elements // lanes * piece.lanes
        for each in tile_ranges(whole, piece.lanes):
            loop_over_tiles(each.start, each.stop, each.step, lambda k: square(k, piece.lanes, lanes))
        if whole < axis.extent:
            square(whole, axis.extent - whole, elements - whole * size)

    def _put(self, value: ir.Value, write: Position, piece: Piece) -> None:
        lanes = piece.lanes * self.group.size
        self.store(value, self.panel, self.at(write, piece.offset * self.group.size), Piece(0, lanes, lanes))


def _interleaved(first: ir.Value, second: ir.Value) -> ir.Value:
    kind = ir.VectorType.get([2 * first.type.shape[0]], first.type.element_type)
    return create("vector.interleave", kind, first, second)
