"""Register tiles: rows x vectors accumulators, carried through the loops of the reduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import emit_init, widened
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.loops import either
from mirlo.passes.schedule.vectors import splat
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.intrinsics.x86 import call_dot, has_dot
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor, LoopIndex
from mirlo.targets.llvm.schedule.contraction.cursors import Buffers, TileCursors
from mirlo.targets.llvm.schedule.contraction.epilogue import Epilogue
from mirlo.targets.llvm.schedule.contraction.groups import has_signs, multiplies_words
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand, WindowIndex
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.stream import lead
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span
from mirlo.targets.llvm.schedule.cost import LINE_BYTES, UNROLLED_STEPS


@dataclass(frozen=True)
class Extent:
    """The size of a tile."""

    rows: int
    cut: list[ColumnVector]


@dataclass(frozen=True)
class KBlock:
    """A K block; the results of earlier blocks are in a buffer."""

    axis: int
    extent: int
    held: ir.Value
    """The partial sums, with the layout of the first output."""
    is_first: bool | ir.Value
    """A bool, or a value that is computed at run time."""
    is_last: bool


class Tiles:
    """Emits tiles of a plan. `packed` tells that the column operand is read from its panel."""

    def __init__(self, code: Code, plan: RegisterTilePlan, buffers: Buffers, packed: bool):
        self.code = code
        self.plan = plan
        self.buffers = buffers
        self.packed = packed
        self.epilogue = Epilogue(code, plan, buffers)
        self.row_lane_stride = plan.rows.form.stride(plan.lane_axis)
        self.column_lane_stride = 1 if packed else plan.columns.form.stride(plan.lane_axis)
        self.lead = lead(plan)
        self.whole_columns = _has_whole_columns(plan)
        self.is_of_words = multiplies_words(plan.contraction.product, plan.machine)
        self.has_signs = self.is_of_words and has_signs(plan.contraction.product)
        self.lines_ahead = 1
        """Cache lines to prefetch for later in each k-step, if there is a cursor for that."""
        self.limits: dict[int, ir.Value | None] = {}
        """Ends of reduction axes, by id: an index, or None for their extent."""
        self.part: KBlock | None = None
        """The current K block, if the reduction is blocked."""

    @property
    def has_epilogue(self) -> bool:
        """Return whether tiles end with the epilogue, as those of the last K block do."""
        return self.part is None or self.part.is_last

    def emit(self, places: TileCursors, extent: Extent) -> None:
        """Emit a tile: accumulators, epilogue, stores."""
        product_ = self.plan.contraction.product
        start = emit_init(self.plan.contraction.block, product_.accumulate_type)
        if self.has_epilogue:
            self.epilogue.fetch(places, extent.rows, extent.cut)
        sums = [self.code.splat_constant(piece.lanes, start) for _ in range(extent.rows) for piece in extent.cut]
        if self.part is not None:
            sums = self._continued(self.part, places, sums, extent)
        if places.ahead is not None:
            places = replace(places, ahead=self._within(places.ahead))
        sums = self._reduce(self.plan.reduce, places, sums, extent)
        if self.part is not None and not self.part.is_last:
            for (position, piece), total in zip(self._held(places, extent), sums, strict=True):
                self.code.store_vector(total, self.part.held, position, piece)
        else:
            self.epilogue.finish(places, extent.rows, extent.cut, sums)

    def _held(self, places: TileCursors, extent: Extent) -> Iterator[tuple[ir.Value, ColumnVector]]:
        """Yield the positions of a tile's partial sums in their buffer."""
        axis, first = self.plan.row_axis, places.writes[0]
        for r in range(extent.rows):
            here = first if axis is None else first.advance(axis, r)
            for piece in extent.cut:
                yield here.position(piece.offset), piece

    def _continued(self, part: KBlock, places: TileCursors, sums: list[ir.Value], extent: Extent) -> list[ir.Value]:
        """Return the initial accumulators of a K block."""

        def loaded() -> list[ir.Value]:
            return [self.code.load_vector(part.held, *place) for place in self._held(places, extent)]

        if isinstance(part.is_first, bool):
            return sums if part.is_first else loaded()
        return either(part.is_first, lambda: sums, loaded, [total.type for total in sums])

    def _reduce(
        self, axes: list[LoopAxis], places: TileCursors, sums: list[ir.Value], extent: Extent
    ) -> list[ir.Value]:
        if not axes:
            self.fetch(places)
            return self._step(places, sums, extent)
        axis, *inner = axes

        def body(i: LoopIndex, *held: ir.Value) -> list[ir.Value]:
            return self._reduce(inner, places.advance(axis, i), list(held), extent)

        for window, start in zip(self.plan.guards, places.guards, strict=True):
            if window.tap.id == axis.id:
                return self._guarded(window, start, body, sums)
        end = self.limits.get(axis.id)
        if end is not None:
            return self.code.range_loop(self.code.index(0), end, body, sums)
        count = axis.extent if self.part is None or self.part.axis != axis.id else self.part.extent
        steps = 1 if inner else self._unrolled_steps(count, extent)
        if steps == 1:
            return self.code.loop(Span(0, count, 1), body, sums)
        assert isinstance(count, int)

        def unrolled(i: LoopIndex, *held: ir.Value) -> list[ir.Value]:
            return self._k_steps(places.advance(axis, i), axis, steps, list(held), extent)

        whole = count // steps * steps
        sums = self.code.loop(Span(0, whole, steps), unrolled, sums)
        return self._k_steps(places.advance(axis, whole), axis, count - whole, sums, extent)

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
        self, places: TileCursors, axis: LoopAxis, steps: int, sums: list[ir.Value], extent: Extent
    ) -> list[ir.Value]:
        """Emit consecutive k-steps, without a loop."""
        if steps:
            self.fetch(places, steps)
        for step in range(steps):
            sums = self._step(places.advance(axis, step), sums, extent)
        return sums

    def _guarded(
        self, window: WindowIndex, start: Cursor, body: Callable[[ir.Value], list[ir.Value]], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """Emit the loop over the taps of a window that are in bounds."""
        if start.base is None and isinstance(window.size, int):
            taps = [t for t in range(window.tap.extent) if 0 <= start.offset + t * window.step < window.size]
            span = Span(taps[0], taps[-1] + 1, 1) if taps else None
            return sums if span is None else self.code.loop(span, body, sums)
        index = ir.IndexType.get()
        first = start.position()
        below = create("arith.subi", index, self.code.index(0), first)
        beyond = create("arith.subi", index, self.code.index(window.size), first)
        if window.step > 1:
            below = create("arith.ceildivsi", index, below, self.code.index(window.step))
            beyond = create("arith.ceildivsi", index, beyond, self.code.index(window.step))
        lower = create("arith.maxsi", index, below, self.code.index(0))
        upper = create("arith.minsi", index, beyond, self.code.index(window.tap.extent))
        return self.code.range_loop(lower, upper, body, sums)

    def _step(self, places: TileCursors, sums: list[ir.Value], extent: Extent) -> list[ir.Value]:
        """Add one product to each accumulator."""
        row_stride, column_stride = self.row_stride(places.rows), self.row_stride(places.columns)
        following = list(sums)
        loaded: dict[tuple[int | str, ...], ir.Value] = {}
        for r in range(extent.rows):
            for p, piece in enumerate(extent.cut):
                left = self._row(places.rows, r * row_stride, piece, loaded)
                key = ("column", r * column_stride, p)
                if key not in loaded:
                    loaded[key] = self._column(places.columns, r * column_stride, piece)
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
        return create("arith.andi", value.type, value, self.code.splat_constant(value.type.shape[0], low))

    def _within(self, ahead: Cursor) -> Cursor:
        """Emit a position from which all k-steps of a tile prefetch elements of the column operand.

        Once a tile, in place of once a k-step: registers of the innermost loop hold what it multiplies.
        """
        buffer = self.buffers.streamed
        read = self.lines_ahead * (LINE_BYTES // element_bytes(buffer.type.element_type))
        for axis in self.plan.reduce:
            extent = axis.extent if self.part is None or self.part.axis != axis.id else self.part.extent
            read = read + ahead.form.stride(axis) * extent
        first, last = ahead.position(), self.code.index(D.maximum(0, buffer.type.shape[0] - read))
        return replace(ahead, base=create("arith.minsi", first.type, first, last), offset=0)

    def fetch(self, places: TileCursors, steps: int = 1) -> None:
        """Prefetch the column operand of a later k-step or of the next panel, if planned, for some k-steps."""
        if places.ahead is not None:
            line = LINE_BYTES // element_bytes(self.buffers.streamed.type.element_type)
            share = D.estimate_dim(places.ahead.form.stride(self.plan.reduce[-1]))
            lines = self.lines_ahead if steps == 1 else -(-steps * share // line)
            for number in range(lines):
                self.code.prefetch_line(self.buffers.streamed, places.ahead.position(number * line))
        ahead, width = self.lead
        if ahead:
            self.code.prefetch(self.buffers.streamed, places.columns.position(ahead), steps * width)

    def row_stride(self, cursor: Cursor) -> int:
        """Return the stride between the rows of a tile."""
        axis = self.plan.row_axis
        return cursor.form.stride(axis) if axis is not None else 0

    def _row(
        self, at: Cursor, shift: int, piece: ColumnVector, loaded: dict[tuple[int | str, ...], ir.Value]
    ) -> ir.Value:
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

    def _column(self, at: Cursor, shift: int, piece: ColumnVector) -> ir.Value:
        if self.packed:
            return self.code.load_vector(self.buffers.columns, at.position(shift + piece.offset), piece, whole=True)
        stride = self.column_lane_stride
        loaded = self.read(self.plan.columns, self.buffers.columns, at, shift, stride, piece)
        return splat(loaded, piece.lanes)

    def read(
        self, side: ContractionOperand, buffer: ir.Value, at: Cursor, shift: int, stride: int, piece: ColumnVector
    ) -> ir.Value:
        """Load and convert an operand: a vector along the lanes, or one element if it does not depend on them."""
        position = at.position(shift + piece.offset * stride)
        if side is self.plan.columns and stride == 1 and self.whole_columns:
            element = self.code.load_vector(buffer, position, piece, whole=True)
        else:
            element = self.code.load_lanes(buffer, position, stride, piece)
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
