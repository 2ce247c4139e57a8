"""Code of register tiles whose instruction multiplies two rows and two columns: accumulators are matrices of 2 x 2."""

from __future__ import annotations

from collections.abc import Iterable

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.tile_code import TileEmitter
from mirlo.passes.schedule.primitives.tile_operands import Loaded, first_of_groups
from mirlo.passes.schedule.primitives.vector_memory import OperandPositions, Piece, Position
from mirlo.passes.schedule.vectors import shuffle

PAIR = 2
"""The rows and the columns of an instruction."""


class PairTileEmitter(TileEmitter):
    """Emits a tile of matrices of 2 x 2; of an odd row, or column, both are the same."""

    def initial_sums(self, rows: int, pieces: list[Piece], start: ir.Attribute) -> list[ir.Value]:
        """Return the accumulators before the first product."""
        pairs = -(-rows // PAIR) * sum(len(_pairs(piece)) for piece in pieces)
        return [self.constants.splat(PAIR * PAIR, start) for _ in range(pairs)]

    def _summed(
        self,
        operands: OperandPositions,
        sums: list[ir.Value],
        rows: int,
        pieces: list[Piece],
        steps: int,
        values: LoopValues,
    ) -> list[ir.Value]:
        """Emit the loops of the reduction, and return the vectors of each row."""
        sums = self._reduce(self.tile.over, operands, sums, rows, pieces, steps, values)
        in_row = sum(len(_pairs(piece)) for piece in pieces)
        result = []
        for r in range(rows):
            at = r // PAIR * in_row
            for piece in pieces:
                count = len(_pairs(piece))
                result.append(_row_of(sums[at : at + count], r % PAIR, piece.lanes, self.tile.instruction.is_exchanged))
                at += count
        return result

    def _add_products(
        self, operands: OperandPositions, rows: Iterable[int], sums: list[ir.Value], pieces: list[Piece], loaded: Loaded
    ) -> list[ir.Value]:
        """Add the products of two rows and two columns to each accumulator."""
        emit = self.tile.instruction.emit
        assert emit is not None
        step, following, count = operands.rows.stride(self.tile.rows), list[ir.Value](), len(list(rows))
        columns = [pair for piece in pieces for pair in self._column_pairs(operands.columns, piece)]
        group = self.tile.instruction.group
        for r in range(0, count, PAIR):
            places = (operands.rows.shift(row * step) for row in (r, min(r + 1, count - 1)))
            first, second = (self._elements_of_row(self.at(place)) for place in places)
            both = shuffle(first, second, range(PAIR * group))
            following += [emit(both, pair, sums[len(following) + i]) for i, pair in enumerate(columns)]
        return following

    def _column_pairs(self, place: Position, piece: Piece) -> list[ir.Value]:
        """Load the groups of two columns each; of a single column twice."""
        group = self.tile.instruction.group
        buffer = self._flat[id(self.column_access.buffer)]
        element, columns = buffer.type.element_type, min(piece.lanes, PAIR)
        kind, result = ir.VectorType.get([columns * group], element), []
        for first in _pairs(piece):
            value: ir.Value = create("vector.load", kind, buffer, self.at(place, (piece.offset + first) * group))
            if self.partial:
                value = first_of_groups(value, group, self.partial)
            result.append(value if columns == PAIR else shuffle(value, value, [*range(group), *range(group)]))
        return result


def _pairs(piece: Piece) -> range:
    """Return the first column of each pair."""
    return range(0, piece.lanes, PAIR)


def _row_of(parts: list[ir.Value], row: int, lanes: int, is_exchanged: bool) -> ir.Value:
    """Return a row of matrices next to each other; of a product whose operands are exchanged, a column."""
    picked = [row, row + PAIR] if is_exchanged else [PAIR * row, PAIR * row + 1]
    if len(parts) == 1:
        return shuffle(parts[0], parts[0], picked[:lanes])
    return shuffle(parts[0], parts[1], [*picked, *(lane + PAIR * PAIR for lane in picked)])
