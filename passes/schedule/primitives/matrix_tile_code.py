"""Code of a register tile on a matrix unit, whose registers have numbers: accumulators, then rows, then columns."""

from __future__ import annotations

from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import either, for_loop
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.register_tile import matrix_registers
from mirlo.passes.schedule.primitives.tile_code import TileEmitter
from mirlo.passes.schedule.primitives.tile_points import TileFunction, each_size
from mirlo.passes.schedule.primitives.tree import BufferAccess, Loop, TileLeaf
from mirlo.passes.schedule.primitives.vector_memory import OperandPositions, Position, pieces_of


class MatrixTileEmitter(TileEmitter):
    """Emits a tile of a matrix unit: loops over K of loads and products, then the epilogue row by row."""

    def __init__(self, tile: TileLeaf, function: TileFunction) -> None:
        super().__init__(tile, function)
        unit, shape = tile.instruction.unit, tile.instruction.shape
        assert unit is not None and shape is not None
        self.unit, self.columns = unit, shape[1]
        self.depth = shape[2]
        height, self.width = matrix_registers(tile)
        self.rows = tile.height // height
        """The rows of a register. Registers have the same ones in tiles of all sizes: they are configured once."""
        self.first_row = height * self.width
        self.first_column = self.first_row + height

    def emit(self, values: LoopValues) -> None:
        """Emit the tile, and smaller ones for the rests of rows, or of registers of rows, and of columns."""
        tile = self.tile
        if tile.lines is None:
            super().emit(values)
            return
        lines = self.sizes(tile.lines, None, tile.line_count, values)
        columns = self.sizes(tile.vectors, tile.lanes, tile.width, values)
        each_size(
            columns,
            lambda width: each_size(
                lines, lambda count: self.emit_tile(values, D.static_dim(count) * self.rows, width)
            ),
        )

    def emit_tile(self, values: LoopValues, rows: int, columns: Dim) -> None:
        """Emit a tile of this size: registers, loops of the reduction, epilogue."""
        tile, leaf = self.tile, self.tile.leaf
        values = values.at({})
        height, width = rows // self.rows, -(-D.static_dim(columns) // self.columns)
        operands = self.operands(values)
        result = leaf.writes[0]

        def finish() -> None:
            memory = self.memory(tile.product.accumulate_type)
            self._move_sums(height, width, memory, self.index(0), tile.width, self.rows * tile.width, is_store=True)
            pieces = pieces_of(D.static_dim(columns), tile.lane_count, True)
            if tile.lines is None:
                self.finish_rows(values, rows, pieces, memory, tile.width)
                return
            for line in range(height):
                self.line = line
                self.finish_rows(values, self.rows, pieces, memory, tile.width)
            self.line = 0

        if not tile.blocks:
            self._zero(height, width)
            self._multiply(tile.over, operands, height, width, values)
            finish()
            return
        place = self.start(self.form(result, leaf.at), values)
        sums = self.placed[result.buffer].flat
        pitch = place.stride(tile.rows)
        kept = partial(self._move_sums, height, width, sums, self.at(place), pitch, self._register_step(place))
        either(self.is_first(values), lambda: self._zero(height, width), lambda: kept(is_store=False))
        self._multiply(tile.over, operands, height, width, values)
        either(self.is_last(values), finish, lambda: kept(is_store=True))

    def _zero(self, height: int, width: int) -> None:
        for r in range(height):
            for c in range(width):
                self.unit.zero(r * self.width + c, self.rows)

    def _multiply(
        self, loops: list[Loop], operands: OperandPositions, height: int, width: int, values: LoopValues
    ) -> None:
        """Emit the loops of the reduction: loads of rows and columns, and the products of each pair."""
        loop, *inner = loops

        def body(i: LoopValue) -> None:
            here = self.inside(operands, loop, i)
            if inner:
                self._multiply(inner, here, height, width, values)
            else:
                self._step(loop, here, height, width)

        bounds = self.clipped(loop, values)
        if bounds is None and loop.extent == 1:
            body(0)
            return
        first, end = bounds or (self.index(0), self.end_of(loop, values)[0])
        for_loop(first, end, self.index(1), body, rolled=True)

    def _step(self, loop: Loop, operands: OperandPositions, height: int, width: int) -> None:
        tile, row, column = self.tile, operands.rows, operands.columns
        self.prefetch(operands, loop, 1)
        row_step, column_step = self._register_step(row), self.columns * column.stride(tile.lanes)
        group = tile.depth[0]
        for r in range(height):
            at = self.at(row, r * row_step)
            self._load(self.first_row + r, self.row_access, at, row.stride(tile.rows), self.rows)
        groups = self.depth // tile.instruction.group
        for c in range(width):
            at = self.at(column, c * column_step)
            self._load(self.first_column + c, self.column_access, at, column.stride(group), groups)
        for r in range(height):
            for c in range(width):
                sums = r * self.width + c
                self.unit.multiply(tile.instruction.name, sums, self.first_row + r, self.first_column + c)

    def _register_step(self, place: Position) -> Dim:
        """Return the elements from one register of rows to the next."""
        tile = self.tile
        return place.stride(tile.lines) if tile.lines is not None else self.rows * place.stride(tile.rows)

    def _load(self, register: int, access: BufferAccess, position: ir.Value, pitch: Dim, rows: int) -> None:
        memory = self.placed[access.buffer].flat
        self.unit.load(register, self._address(memory, position), self._pitch(memory, pitch), rows)

    def _move_sums(
        self, height: int, width: int, memory: ir.Value, start: ir.Value, pitch: Dim, step: Dim, is_store: bool
    ) -> None:
        """Emit loads or stores of the accumulators; rows are `pitch` elements apart, registers of them `step`."""
        move = self.unit.store if is_store else self.unit.load
        for r in range(height):
            for c in range(width):
                offset = r * step + c * self.columns
                at = create("arith.addi", start.type, start, self.index(offset)) if offset != 0 else start
                move(r * self.width + c, self._address(memory, at), self._pitch(memory, pitch), self.rows)

    def _pitch(self, memory: ir.Value, pitch: Dim) -> ir.Value:
        wide = ir.IntegerType.get_signless(64)
        size = element_bytes(memory.type.element_type)
        return create("arith.index_cast", wide, self.index(pitch * size))

    def _address(self, memory: ir.Value, position: ir.Value) -> ir.Value:
        kind, wide = ir.IndexType.get(), ir.IntegerType.get_signless(64)
        start = create("memref.extract_aligned_pointer_as_index", kind, memory)
        size = element_bytes(memory.type.element_type)
        moved = create("arith.muli", kind, position, self.index(size)) if size != 1 else position
        address = create("arith.addi", kind, start, moved)
        return create("llvm.inttoptr", ir.Type.parse("!llvm.ptr"), create("arith.index_cast", wide, address))
