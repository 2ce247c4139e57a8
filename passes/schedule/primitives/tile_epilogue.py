"""The epilogue of a register tile: what blocks compute on its accumulators, and stores of the results."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import convert_accumulator
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.primitives.contiguity import in_iterations
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.tile_points import TileFunction, TilePoints, each_size, tile_points
from mirlo.passes.schedule.primitives.tree import (
    BufferAccess,
    Loop,
    TileLeaf,
)
from mirlo.passes.schedule.primitives.vector_memory import (
    Piece,
    Position,
)
from mirlo.passes.schedule.vectors import lane_indices, read_body, splat, vector_body
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class PlacedAccess:
    """The place of an access of an epilogue: its buffer, position, and steps along the rows and the columns."""

    buffer: ir.Value
    start: Position
    step: Dim
    stride: Dim


class TileEpilogue(TilePoints):
    """Computes the epilogue on the accumulators: unrolled, or in a loop over rows that are stored for it."""

    def __init__(self, tile: TileLeaf, function: TileFunction) -> None:
        super().__init__(tile, function)
        # Read once, for all sizes of the tile.
        self._epilogue = [(after, at, read_body(after.body)) for after, at in self.placed.epilogue(tile.leaf)]
        self.held_row: ir.Value | None = None
        """The row of the memory for accumulators in which those of a tile begin whose epilogue others share."""
        self.line = 0
        """The register of rows, of a loop of its own, whose epilogue is emitted."""
        self.column: LoopValue = 0
        """The first of the columns whose epilogue is emitted, where a loop is over them."""

    def _finish(self, values: LoopValues, rows: int, pieces: list[Piece], sums: list[ir.Value]) -> None:
        """Compute the epilogue on the accumulators, vector by vector, and store the results."""
        tile, result = self.tile, self.tile.leaf.writes[0]
        if self.held_row is not None:
            line = create("arith.muli", self.held_row.type, self.held_row, self.index(tile.width))
            self._hold(line, tile.width, rows, pieces, sums)
            return
        is_whole = (rows, len(pieces)) == (tile.height, tile.width // tile.lane_count)
        if rows > 1 and tile.epilogue is not None and len(sums) > tile.epilogue[not is_whole]:
            width = sum(piece.lanes for piece in pieces)
            memory = self._hold(None, width, rows, pieces, sums)
            self.finish_rows(values, rows, pieces, memory, width)
            return
        places: dict[int, PlacedAccess] = {}
        seen: dict[tuple[int, Dim, int], ir.Value] = {}
        for r, p in tile_points(rows, len(pieces)):
            total = convert_accumulator(sums[r * len(pieces) + p], result.buffer.element)
            self._finish_vector(values, r, pieces[p], total, places, seen)

    def shares_rest(self, loop: Loop, sizes: Sequence[int]) -> bool:
        """Return whether the smaller tiles in a loop over tiles have one epilogue: each would be a copy of its code."""
        tile = self.tile
        if tile.epilogue is None or tile.instruction.unit is not None or tile.blocks or loop.body != tile.over[:1]:
            return False
        return len(sizes) > 1 and sum(sizes) * (tile.width // tile.lane_count) > tile.epilogue[1]

    def finish_rest(self, values: LoopValues, count: ir.Value) -> None:
        """Compute the epilogue of this many rows, whose accumulators smaller tiles have stored."""
        tile = self.tile
        values = values.at({})
        memory = self.memory(tile.product.accumulate_type)

        def finish(columns: Dim) -> None:
            self.finish_rows(values, count, self.pieces(columns), memory, tile.width)

        each_size(self.sizes(tile.vectors, tile.lanes, tile.width, values), finish)

    def _hold(
        self, line: ir.Value | None, width: int, rows: int, pieces: list[Piece], sums: list[ir.Value]
    ) -> ir.Value:
        """Store accumulators, from a position in memory on, in rows of this many columns; return the memory."""
        memory = self.memory(sums[0].type.element_type)
        for r, p in tile_points(rows, len(pieces)):
            offset = self.index(r * width + pieces[p].offset)
            where = offset if line is None else create("arith.addi", line.type, line, offset)
            ir.Operation.create("vector.store", operands=[sums[r * len(pieces) + p], memory, where])
        return memory

    def memory(self, kind: ir.Type) -> ir.Value:
        """Return memory for the accumulators of a tile, the same for all of its sizes."""
        return self.constants.scratch(("accumulators", self.tile), self.tile.height * self.tile.width, kind)

    def finish_rows(
        self, values: LoopValues, rows: int | ir.Value, pieces: list[Piece], memory: ir.Value, width: int
    ) -> None:
        """Compute the epilogue on accumulators in memory, in a loop over rows of this many columns."""

        def row(i: ir.Value) -> None:
            first = self.line * rows * width if isinstance(rows, int) else 0
            line = create("arith.muli", i.type, i, self.index(width))
            line = create("arith.addi", i.type, line, self.index(first)) if first else line
            places: dict[int, PlacedAccess] = {}
            for piece in pieces:
                where = create("arith.addi", i.type, line, self.index(piece.offset)) if piece.offset else line
                total = self.load(memory, where, piece, True)
                total = convert_accumulator(total, self.tile.leaf.writes[0].buffer.element)
                self._finish_vector(values, i, piece, total, places, {})

        for_loop(self.index(0), self.index(rows) if isinstance(rows, int) else rows, self.index(1), row)

    def _finish_vector(
        self,
        values: LoopValues,
        r: LoopValue,
        piece: Piece,
        total: ir.Value,
        places: dict[int, PlacedAccess],
        seen: dict[tuple[int, Dim, int], ir.Value],
    ) -> None:
        """Compute the epilogue on a vector of accumulators, in row r, and store the results."""
        leaf, tile = self.tile.leaf, self.tile
        result = leaf.writes[0]
        row = r if isinstance(r, int) else 0

        def place(access: BufferAccess, at: list[IndexExpr]) -> PlacedAccess:
            known = places.get(id(access))
            if known is None:
                start = self.advance(self.start(self.form(access, at), values), tile.lines, self.line)
                start = self.advance(start, tile.lanes, self.column)
                steps = start.stride(tile.rows), self.column_stride(start)
                start = start if isinstance(r, int) else self.advance(start, tile.rows, r)
                known = places[id(access)] = PlacedAccess(self.placed[access.buffer].flat, start, *steps)
            return known

        held = {id(result.buffer): total}
        if not result.is_held and tile.is_stored:
            self._write(total, place(result, leaf.at), row, piece)
        for after, at, body in self._epilogue:
            env: dict[ir.Value, ir.Value] = {}
            for axis, argument in after.body.indices:
                env[argument] = self._index(at[axis], values, r, piece)
            for argument, access in zip(after.body.inputs, after.reads, strict=True):
                if id(access.buffer) in held:
                    env[argument] = held[id(access.buffer)]
                elif access.is_opaque:
                    env[argument] = self.placed[access.buffer].value
                else:
                    env[argument] = self._read(access, place(access, at), row, piece, seen)
            mask = self.mask(piece) if piece.is_partial else None
            outputs = vector_body(body, env, piece.lanes, mask)
            for value, write in zip(outputs, after.writes, strict=True):
                held[id(write.buffer)] = value
                if not write.is_held:
                    self._write(splat(value, piece.lanes), place(write, at), row, piece)

    def _index(self, form: IndexExpr, values: LoopValues, r: LoopValue, piece: Piece) -> ir.Value:
        """Emit the index of an axis, in each lane if it moves along the columns."""
        start = self.advance(self.start(in_iterations(form, self.tile.leaf), values), self.tile.lines, self.line)
        start = self.advance(self.advance(start, self.tile.rows, r), self.tile.lanes, self.column)
        stride = self.column_stride(start)
        first = self.at(start, piece.offset * stride)
        return first if stride == 0 else lane_indices(first, piece.lanes)

    def _read(
        self,
        access: BufferAccess,
        place: PlacedAccess,
        r: int,
        piece: Piece,
        seen: dict[tuple[int, Dim, int], ir.Value],
    ) -> ir.Value:
        """Load an operand of an epilogue at a vector of columns, if it is not loaded yet."""
        stride = place.stride
        offset = r * place.step + piece.offset * stride
        key = (id(access), offset, piece.lanes if stride else 0)
        if key not in seen:
            seen[key] = self.load_lanes(place.buffer, self.at(place.start, offset), stride, piece)
        return seen[key]

    def _write(self, value: ir.Value, place: PlacedAccess, r: int, piece: Piece) -> None:
        self.store(value, place.buffer, self.at(place.start, r * place.step + piece.offset), piece)
