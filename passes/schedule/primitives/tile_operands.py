"""Operands of the products of a register tile: elements of rows, alone or in groups, and vectors of columns."""

from __future__ import annotations

from functools import cached_property, partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import ProductInput, widened
from mirlo.passes.schedule.primitives.register_tile import sides_of
from mirlo.passes.schedule.primitives.tile_points import TileFunction, TilePoints
from mirlo.passes.schedule.primitives.tree import (
    BufferAccess,
    TileLeaf,
)
from mirlo.passes.schedule.primitives.vector_memory import (
    Piece,
    Position,
)
from mirlo.passes.schedule.vectors import splat

Loaded = dict[tuple[str, ir.Value | None, Dim, int], ir.Value]
"""The operands that are loaded for some products: of which side, from where, with which columns."""


class TileOperands(TilePoints):
    """Loads the operands of a register tile, as its instruction takes them."""

    def __init__(self, tile: TileLeaf, function: TileFunction) -> None:
        super().__init__(tile, function)
        (self.row_factor, self.row_access), (self.column_factor, self.column_access) = sides_of(tile)
        self._flat: dict[int, ir.Value] = {}
        """The memory of the operands as one dim, for the tile that is emitted now."""
        is_each = all(form.variables().isdisjoint(loop.name for loop in tile.over) for form, _ in self._group_guards)
        self.partial = self.tail if is_each else 0
        """The elements of the group that is emitted, where it has fewer than others."""

    @property
    def tail(self) -> int:
        """Return the elements of the last group along K; 0 if it has as many as others."""
        bounds = (D.static_dim(bound) for form, bound in self._group_guards)
        return next(bounds, 0) % self.tile.instruction.group

    @cached_property
    def _group_guards(self) -> list[tuple[IndexExpr, Dim]]:
        """Return the guards that limit the elements of a group along K."""
        group = {loop.name for loop in self.tile.depth}
        return [guard for guard in self.tile.leaf.guards if guard[0].variables() & group]

    @cached_property
    def _own_rows(self) -> bool:
        """Return whether each column is multiplied by a row of its own: rows are vectors, too."""
        return bool(self.form(self.row_access, self.tile.leaf.at).coefficient(self.tile.lanes.name) != 0)

    def _row_element(self, place: Position, loaded: Loaded) -> ir.Value:
        """Load the elements of a row that an instruction multiplies, for all columns."""
        key = ("row", place.base, place.offset, 0)
        if key not in loaded:
            loaded[key] = self._row_group(self.at(place))
        return loaded[key]

    def _row_vector(self, place: Position, piece: Piece, loaded: Loaded) -> ir.Value:
        """Load a vector of rows, one for each column."""
        key = ("row", place.base, place.offset, piece.offset)
        if key not in loaded:
            buffer, stride = self._flat[id(self.row_access.buffer)], self.column_stride(place)
            vector = self.load_lanes(buffer, self.at(place, piece.offset * stride), stride, piece)
            loaded[key] = self._convert(self.row_factor, self.row_access, vector, piece.lanes)
        return loaded[key]

    def _column_vector(self, place: Position, piece: Piece, loaded: Loaded) -> ir.Value:
        key = ("column", place.base, place.offset, piece.offset)
        if key not in loaded:
            stride = self.column_stride(place)
            loaded[key] = self._column_groups(self.at(place, piece.offset * stride), piece, stride)
        return loaded[key]

    def _row_group(self, position: ir.Value) -> ir.Value:
        """Load the elements of a row that an instruction multiplies: one, or a group as 32 bits.

        Of a partial group with one element that is all: integers of columns are zeros where it is multiplied again.
        """
        buffer, group = self._flat[id(self.row_access.buffer)], self.tile.instruction.group
        element = buffer.type.element_type
        if group == 1:
            return self._convert(self.row_factor, self.row_access, create("memref.load", element, buffer, position), 1)
        if self.partial == 1 and isinstance(element, ir.IntegerType):
            single = create("memref.load", element, buffer, position)
            return self._prepared(self.row_factor, self.row_access, single, is_row=True)
        value = self._prepared(self.row_factor, self.row_access, self._elements_of_row(position), is_row=True)
        bits = ir.VectorType.get([1], ir.IntegerType.get_signless(32))
        first = ir.DenseI64ArrayAttr.get([0])
        return create("vector.extract", bits.element_type, create("vector.bitcast", bits, value), static_position=first)

    def _elements_of_row(self, position: ir.Value) -> ir.Value:
        """Load the elements of a row in a group; those that a partial group has not are zero."""
        buffer, group = self._flat[id(self.row_access.buffer)], self.tile.instruction.group
        element = buffer.type.element_type
        if not self.partial:
            return create("vector.load", ir.VectorType.get([group], element), buffer, position)
        value = self.zeros(group, element)
        for i in range(self.partial):
            at = create("arith.addi", position.type, position, self.index(i)) if i else position
            place = ir.DenseI64ArrayAttr.get([i])
            loaded = create("memref.load", element, buffer, at)
            value = create("vector.insert", value.type, loaded, value, static_position=place)
        return value

    def _spread(self, element: ir.Value, lanes: int, loaded: Loaded) -> ir.Value:
        """Spread the elements of a row to as many lanes."""
        key = ("lanes", element, lanes, 0)
        if key not in loaded:
            instruction, group = self.tile.instruction, self.tile.instruction.group
            kind = instruction.prepared_type(self.row_access.buffer.element)
            is_group = group > 1 and not (self.partial == 1 and element.type == kind)
            spread = splat(element, lanes if is_group else lanes * group)
            loaded[key] = (
                create("vector.bitcast", ir.VectorType.get([lanes * group], kind), spread) if is_group else spread
            )
        return loaded[key]

    def _column_groups(self, position: ir.Value, piece: Piece, stride: Dim) -> ir.Value:
        buffer, group = self._flat[id(self.column_access.buffer)], self.tile.instruction.group
        if group == 1:
            if stride == 1:
                vector = self.load(buffer, position, piece, self._reads_whole_vectors)
            else:
                vector = splat(self.load_lanes(buffer, position, stride, piece), piece.lanes)
            return self._convert(self.column_factor, self.column_access, vector, piece.lanes)
        kind = ir.VectorType.get([piece.lanes * group], buffer.type.element_type)
        value: ir.Value = create("vector.load", kind, buffer, position)  # stored panels are whole
        if self.partial:
            value = first_of_groups(value, group, self.partial)
        return self._prepared(self.column_factor, self.column_access, value, is_row=False)

    @property
    def _reads_whole_vectors(self) -> bool:
        """Return whether whole vectors may be read at the last columns: panels in memory are as wide as tiles."""
        tile, placed = self.tile, self.placed[self.column_access.buffer]
        form = self.form(self.column_access, tile.leaf.at)
        along = {tile.lanes.name, tile.vectors.name if tile.vectors is not None else ""}
        sizes = [*(c for a, c in form.terms.items() if a not in along), form.constant, D.product(placed.shape)]
        return all(D.is_certain(partial(_is_multiple, size, tile.width)) for size in sizes)

    def _prepared(self, factor: ProductInput, access: BufferAccess, value: ir.Value, is_row: bool) -> ir.Value:
        """Emit the elements of a group as the instruction takes them."""
        return value if access.is_converted else self.tile.instruction.prepared(factor, value, is_row)

    def _convert(self, factor: ProductInput, access: BufferAccess, value: ir.Value, lanes: int) -> ir.Value:
        if access.is_converted:
            return value
        return widened(factor.emit(value, lanes), self.tile.product.accumulate_type)


def first_of_groups(value: ir.Value, group: int, count: int) -> ir.Value:
    """Emit a vector of groups with zeros after the first elements of each, whatever is in memory there."""
    (size,), element = value.type.shape, value.type.element_type
    bits = ir.IntegerType.get_signless(8 * element_bytes(element))
    kind = ir.VectorType.get([size], bits)
    masks = [ir.IntegerAttr.get(bits, -1 if i % group < count else 0) for i in range(size)]
    mask = create("arith.constant", kind, value=ir.DenseElementsAttr.get(masks, kind))
    kept = create("arith.andi", kind, create("vector.bitcast", kind, value), mask)
    return create("vector.bitcast", value.type, kept)


def _is_multiple(value: Dim, factor: int) -> bool:
    return bool(value % factor == 0)
