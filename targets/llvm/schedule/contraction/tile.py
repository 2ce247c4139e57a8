"""Register tiles: rows x vectors accumulators, carried through the loops of the reduction."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import emit_init, widened
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import for_loop, loop_over_tiles
from mirlo.passes.schedule.primitives.function_constants import FunctionConstants
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.vector_memory import (
    LINE_BYTES,
    READ_FEW,
    OperandPositions,
    Piece,
    Position,
    VectorMemory,
)
from mirlo.passes.schedule.vectors import splat
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.intrinsics.x86 import call_dot, has_dot
from mirlo.targets.llvm.schedule.contraction.epilogue import Epilogue
from mirlo.targets.llvm.schedule.contraction.groups import has_signs, multiplies_words
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.cost import UNROLLED_STEPS

Loaded = dict[tuple[Dim | str, ...], ir.Value]
"""The operands that are loaded for some products, by their positions and vectors."""


@dataclass(frozen=True)
class Buffers:
    """The flat buffers that a tile reads and writes."""

    rows: ir.Value
    columns: ir.Value
    """The column operand, or the copy of a panel."""
    streamed: ir.Value
    """The column operand as it is in memory, which is prefetched."""
    writes: list[ir.Value]
    reads: list[list[ir.Value | None]]


@dataclass(frozen=True)
class Extent:
    """The size of a tile."""

    rows: int
    cut: list[Piece]


class Tiles(VectorMemory):
    """Emits tiles of a plan. `packed` means that the column operand is read from its panel."""

    def __init__(
        self,
        constants: FunctionConstants,
        memory: TensorBuffers,
        plan: RegisterTilePlan,
        buffers: Buffers,
        packed: bool,
    ):
        super().__init__(constants)
        self.memory = memory
        self.plan = plan
        self.buffers = buffers
        self.packed = packed
        self.epilogue = Epilogue(constants, memory, plan, buffers.reads, buffers.writes)
        self.columns = plan.columns.form
        """Where columns are: in the operand, or in the copy of a panel."""
        self.ahead: IndexExpr | None = None
        """What is prefetched for the next panel."""
        self.row_lane_stride = plan.rows.form.stride(plan.lane_axis)
        self.column_lane_stride = 1 if packed else plan.columns.form.stride(plan.lane_axis)
        self.whole_columns = _has_whole_columns(plan)
        self.is_of_words = multiplies_words(plan.contraction.product, plan.machine)
        self.has_signs = self.is_of_words and has_signs(plan.contraction.product)
        self.lines_ahead = 1
        """Cache lines to prefetch for later in each k-step, if something is prefetched for later."""
        self.limits: dict[int, ir.Value | None] = {}
        """Ends of reduction axes, by id: an index, or None for their extent."""
        self.sums: ir.Value | None = None
        """Where accumulators are that tiles continue, with the layout of the first output."""

    def emit(self, values: LoopValues, extent: Extent) -> None:
        """Emit a tile: accumulators, epilogue, stores; of accumulators in memory their sums with the products."""
        values = values.at({})
        if self.sums is not None:
            sums = self._reduce(
                self.plan.reduce, self.operands(values), self._loaded(values, self.sums, extent), extent, values
            )
            for (position, piece), total in zip(self._held(values, extent), sums, strict=True):
                self.store(total, self.sums, position, piece)
            return
        self.epilogue.fetch_operands(values, extent.rows, extent.cut)
        sums = self._reduce(self.plan.reduce, self.operands(values), self._zeros_of(extent), extent, values)
        self.epilogue.finish(values, extent.rows, extent.cut, sums)

    def begin(self, values: LoopValues, extent: Extent, memory: ir.Value) -> None:
        """Store the initial values of accumulators in memory."""
        for (position, piece), total in zip(self._held(values, extent), self._zeros_of(extent), strict=True):
            self.store(total, memory, position, piece)

    def finish(self, values: LoopValues, extent: Extent, memory: ir.Value) -> None:
        """Emit the epilogue of accumulators in memory, and the stores."""
        self.epilogue.finish(values, extent.rows, extent.cut, self._loaded(values, memory, extent))

    def _zeros_of(self, extent: Extent) -> list[ir.Value]:
        """Return the initial accumulators of a tile."""
        start = emit_init(self.plan.contraction.block, self.plan.contraction.product.accumulate_type)
        return [self.constants.splat(piece.lanes, start) for _ in range(extent.rows) for piece in extent.cut]

    def _loaded(self, values: LoopValues, memory: ir.Value, extent: Extent) -> list[ir.Value]:
        return [self.load(memory, *place) for place in self._held(values, extent)]

    def operands(self, values: LoopValues) -> OperandPositions:
        """Emit where the tile reads rows and columns, and what it prefetches."""
        # The loops around a panel have moved its copy.
        columns = self.place(self.columns, LoopValues() if self.packed else values)
        ahead = () if self.ahead is None else (self._within(self.place(self.ahead, values)),)
        return OperandPositions(self.place(self.plan.rows.form, values), columns, ahead)

    def inside(self, operands: OperandPositions, axis: LoopAxis, by: LoopValue) -> OperandPositions:
        """Emit the operands at an iteration of a loop of the reduction."""
        rows, columns = (self.moved(each, axis.id, by) for each in (operands.rows, operands.columns))
        return OperandPositions(rows, columns, tuple(self.moved(each, axis.id, by) for each in operands.ahead))

    def _held(self, values: LoopValues, extent: Extent) -> Iterator[tuple[ir.Value, Piece]]:
        """Yield the positions of a tile's partial sums in their buffer."""
        first = self.place(self.plan.writes[0], values)
        for r in range(extent.rows):
            for piece in extent.cut:
                yield self.at(first, r * self.row_stride(first) + piece.offset), piece

    def _reduce(
        self,
        axes: list[LoopAxis],
        operands: OperandPositions,
        sums: list[ir.Value],
        extent: Extent,
        values: LoopValues,
    ) -> list[ir.Value]:
        if not axes:
            self.prefetch(operands)
            return self._step(operands, sums, extent)
        axis, *inner = axes

        def body(i: LoopValue, *held: ir.Value) -> list[ir.Value]:
            return self._reduce(inner, self.inside(operands, axis, i), list(held), extent, values)

        end = self.limits.get(axis.id)
        if end is not None:
            return for_loop(0, end, 1, body, sums, rolled=True)
        count = axis.extent
        steps = 1 if inner else self._unrolled_steps(count, extent)
        if steps == 1:
            return loop_over_tiles(0, count, 1, body, sums)
        assert isinstance(count, int)

        def unrolled(i: LoopValue, *held: ir.Value) -> list[ir.Value]:
            return self._k_steps(self.inside(operands, axis, i), axis, steps, list(held), extent)

        whole = count // steps * steps
        sums = loop_over_tiles(0, whole, steps, unrolled, sums)
        return self._k_steps(self.inside(operands, axis, whole), axis, count - whole, sums, extent)

    def _unrolled_steps(self, count: Dim, extent: Extent) -> int:
        """Return the k-steps of an iteration of the innermost loop along K: several in whole tiles of several rows.

        Tiles that leave too few registers for elements of the next k-step have one: of several, scheduling for some
        processors moves accumulators between registers.
        """
        plan = self.plan
        is_whole = extent.rows == plan.tile_rows > 1 and len(extent.cut) == plan.tile_vectors
        if not is_whole or plan.dot or plan.group is not None or not isinstance(count, int):
            return 1
        most = plan.machine.unrolled_products // (plan.tile_rows * plan.tile_vectors)
        return max(1, min(UNROLLED_STEPS, count)) if most >= UNROLLED_STEPS else 1

    def _k_steps(
        self, operands: OperandPositions, axis: LoopAxis, steps: int, sums: list[ir.Value], extent: Extent
    ) -> list[ir.Value]:
        """Emit consecutive k-steps, without a loop."""
        if steps:
            self.prefetch(operands, steps)
        for step in range(steps):
            sums = self._step(self.inside(operands, axis, step), sums, extent)
        return sums

    def _step(self, operands: OperandPositions, sums: list[ir.Value], extent: Extent) -> list[ir.Value]:
        """Add one product to each accumulator."""
        row_stride, column_stride = self.row_stride(operands.rows), self.row_stride(operands.columns)
        following = list(sums)
        loaded: Loaded = {}
        for r in range(extent.rows):
            for p, piece in enumerate(extent.cut):
                left = self._row(operands.rows, r * row_stride, piece, loaded)
                key = ("column", r * column_stride, p)
                if key not in loaded:
                    loaded[key] = self._column(operands.columns, r * column_stride, piece)
                slot = r * len(extent.cut) + p
                following[slot] = self._multiply_add(left, loaded[key], following[slot])
        return following

    def _multiply_add(self, left: ir.Value, right: ir.Value, total: ir.Value) -> ir.Value:
        """Emit `total + left * right`, of int8 in 16 bits of each lane where an instruction multiplies these."""
        if self.is_of_words and has_dot("vpmaddwd", total):
            return multiply_words(left, self._without_sign(right), total)
        return multiply_add(left, right, total)

    def _without_sign(self, value: ir.Value) -> ir.Value:
        """Return an operand whose upper halves are zero, unless those of the other one are."""
        if not self.has_signs:
            return value
        low = ir.IntegerAttr.get(value.type.element_type, LOW_HALF)
        return create("arith.andi", value.type, value, self.constants.splat(value.type.shape[0], low))

    def _within(self, ahead: Position) -> Position:
        """Emit a position from which all k-steps of a tile prefetch elements of the column operand."""
        buffer = self.buffers.streamed
        read: Dim = (self.lines_ahead - 1) * (LINE_BYTES // element_bytes(buffer.type.element_type))
        for axis in self.plan.reduce:
            read = read + ahead.step(axis.id) * axis.extent
        return self.within(ahead, buffer, read)

    def prefetch(self, operands: OperandPositions, steps: int = 1) -> None:
        """Prefetch the column operand of a later k-step or of the next panel, if planned, for some k-steps."""
        buffer = self.buffers.streamed
        for place in operands.ahead:
            line = LINE_BYTES // element_bytes(buffer.type.element_type)
            share = D.estimate_dim(place.step(self.plan.reduce[-1].id))
            lines = self.lines_ahead if steps == 1 else -(-steps * share // line)
            for number in range(lines):
                self.touch(buffer, self.at(place, number * line), READ_FEW)

    def row_stride(self, place: Position) -> Dim:
        """Return the stride between the rows of a tile."""
        axis = self.plan.row_axis
        return place.step(axis.id) if axis is not None else 0

    def _row(self, at: Position, shift: Dim, piece: Piece, loaded: Loaded) -> ir.Value:
        """Load the row operand for one vector: an element for all lanes, or a vector."""
        stride = self.row_lane_stride
        key = ("row", shift + piece.offset * stride, *((piece.lanes, piece.active) if stride else ()))
        if key not in loaded:
            loaded[key] = self.read(self.plan.rows, self.buffers.rows, at, shift, stride, piece)
        if stride:
            return loaded[key]
        spread = (*key, piece.lanes)
        if spread not in loaded:
            loaded[spread] = splat(loaded[key], piece.lanes)
        return loaded[spread]

    def _column(self, at: Position, shift: Dim, piece: Piece) -> ir.Value:
        if self.packed:
            return self.load(self.buffers.columns, self.at(at, shift + piece.offset), piece, whole=True)
        stride = self.column_lane_stride
        loaded = self.read(self.plan.columns, self.buffers.columns, at, shift, stride, piece)
        return splat(loaded, piece.lanes)

    def read(
        self, side: ContractionOperand, buffer: ir.Value, at: Position, shift: Dim, stride: Dim, piece: Piece
    ) -> ir.Value:
        """Load and convert an operand: a vector along the lanes, or one element if it does not depend on them."""
        position = self.at(at, shift + piece.offset * stride)
        if side is self.plan.columns and stride == 1 and self.whole_columns:
            element = self.load(buffer, position, piece, whole=True)
        else:
            element = self.load_lanes(buffer, position, stride, piece)
        return element if side.is_converted else converted(self.plan, side, element, piece.lanes)


def _has_whole_columns(plan: RegisterTilePlan) -> bool:
    """Return whether vectors of columns may be read whole: the last one of every k-step ends inside of the operand."""
    side, lane_axis = plan.columns, plan.lane_axis
    if plan.dot or not isinstance(lane_axis.extent, int):
        return False
    if side.padded_shape is not None or side.form.stride(lane_axis) != 1:
        return False
    extents = {axis.id: axis.extent for axis in (*plan.column_loops, *plan.reduce)}
    extents[lane_axis.id] = plan.covered_columns
    sizes = [*side.access.shape, *(extents.get(variable) for variable in side.form.variables())]
    if not all(isinstance(size, int) for size in sizes):
        return False
    return bool(side.form.range(extents)[1] < prod(side.access.shape))


def converted(plan: RegisterTilePlan, side: ContractionOperand, element: ir.Value, lanes: int) -> ir.Value:
    """Convert an element of an operand, or a vector of elements, to the type of the product."""
    return widened(side.factor.emit(element, lanes), plan.contraction.product.accumulate_type)


def multiply_add(left: ir.Value, right: ir.Value, total: ir.Value) -> ir.Value:
    """Emit `total + left * right`, rounded once for floats."""
    if isinstance(total.type.element_type, ir.FloatType):
        return create("vector.fma", total.type, left, right, total)
    return create("arith.addi", total.type, total, create("arith.muli", total.type, left, right))


def multiply_words(left: ir.Value, right: ir.Value, total: ir.Value) -> ir.Value:
    """Emit `total + left * right` of int8 that are extended to i32, by products of 16-bit integers.

    `vpmaddwd` adds the products of the upper and of the lower halves of lanes: the upper halves of one must be zero.
    """
    words = ir.VectorType.get([2 * total.type.shape[0]], ir.IntegerType.get_signless(16))
    return call_dot("vpmaddwd", total, *(create("vector.bitcast", words, value) for value in (left, right)))


LOW_HALF = 0xFFFF
"""The lower half of an i32."""
