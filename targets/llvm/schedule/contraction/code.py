"""Helpers to emit a kernel: positions in flat buffers, vector loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import either, for_loop, if_any
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span
from mirlo.targets.llvm.schedule.cost import LINE_BYTES

LoopIndex = Dim | ir.Value
"""An index: a dim, or a value that is computed at run time."""


class Code:
    """A function under construction. Constants, masks and flat buffers are emitted once, at its start."""

    def __init__(self, memory: TensorBuffers):
        self.memory = memory
        self.buffers = memory.buffers
        self._constants: dict[Dim, ir.Value] = {}
        self._masks: dict[tuple[int, Dim], ir.Value] = {}
        self._zeros: dict[tuple[ir.VectorType, ir.Attribute], ir.Value] = {}

    def index(self, value: Dim) -> ir.Value:
        if value not in self._constants:
            kind = ir.IndexType.get()
            if not isinstance(value, int):
                text = ir.StringAttr.get(str(value))
                self._constants[value] = self._first("tir.size", kind, dim=text)
                return self._constants[value]
            self._constants[value] = self._first("arith.constant", kind, value=ir.IntegerAttr.get(kind, value))
        return self._constants[value]

    def mask(self, piece: ColumnVector) -> ir.Value:
        key = (piece.lanes, piece.active)
        if key not in self._masks:
            kind = ir.VectorType.get([piece.lanes], ir.IntegerType.get_signless(1))
            if not isinstance(piece.active, int):
                active = self.index(piece.active)
                with ir.InsertionPoint.after(active.owner), self.buffers.location:
                    self._masks[key] = create("vector.create_mask", kind, active)
                return self._masks[key]
            lanes = ir.DenseElementsAttr.get([ir.BoolAttr.get(i < piece.active) for i in range(piece.lanes)], kind)
            self._masks[key] = self._first("arith.constant", kind, value=lanes)
        return self._masks[key]

    def splat_constant(self, lanes: int, attribute: ir.Attribute) -> ir.Value:
        """Return a vector constant with this value in all lanes."""
        kind = ir.VectorType.get([lanes], attribute.type)
        key = (kind, attribute)
        if key not in self._zeros:
            value = ir.DenseElementsAttr.get_splat(kind, attribute)
            self._zeros[key] = self._first("arith.constant", kind, value=value)
        return self._zeros[key]

    def zero(self, lanes: int, element_type: ir.Type) -> ir.Value:
        is_float = isinstance(element_type, ir.FloatType)
        number = ir.FloatAttr.get(element_type, 0.0) if is_float else ir.IntegerAttr.get(element_type, 0)
        return self.splat_constant(lanes, number)

    def flat(self, value: ir.Value) -> ir.Value:
        """Return the one-dimensional view of a value's buffer. Its first use must be outside of all loops."""
        return self.memory.slot(value).buffer

    def scratch(self, elements: Dim, element_type: ir.Type) -> ir.Value:
        return self.buffers.scratch([elements], element_type)

    def _first(self, name: str, result: ir.Type, **attributes: ir.Attribute) -> ir.Value:
        with ir.InsertionPoint.at_block_begin(self.buffers.entry), self.buffers.location:
            return create(name, result, **attributes)

    def load(self, buffer: ir.Value, position: ir.Value) -> ir.Value:
        return create("memref.load", buffer.type.element_type, buffer, position)

    def prefetch(self, buffer: ir.Value, position: ir.Value, elements: int) -> None:
        """Prefetch the cache lines of some elements, which may be out of bounds and are needed soon."""
        last = self.index(max(0, buffer.type.shape[0] - elements))
        inside = create("arith.minsi", position.type, position, last)
        for shift in range(0, elements, LINE_BYTES // element_bytes(buffer.type.element_type)):
            place = self.add(inside, self.index(shift)) if shift else inside
            memref.PrefetchOp(buffer, [place], isWrite=False, localityHint=3, isDataCache=True)

    def prefetch_line(self, buffer: ir.Value, position: ir.Value) -> None:
        """Prefetch the cache line of an element into the L2 cache, for later."""
        memref.PrefetchOp(buffer, [position], isWrite=False, localityHint=2, isDataCache=True)

    def load_vector(self, buffer: ir.Value, position: ir.Value, piece: ColumnVector, whole: bool = False) -> ir.Value:
        """Load contiguous elements; inactive lanes are zero, unless `whole` allows to read them."""
        kind = ir.VectorType.get([piece.lanes], buffer.type.element_type)
        if whole or not piece.is_partial:
            return create("vector.load", kind, buffer, position)
        zero = self.zero(piece.lanes, kind.element_type)
        return create("vector.maskedload", kind, buffer, position, self.mask(piece), zero)

    def load_strided(self, buffer: ir.Value, position: ir.Value, stride: Dim, piece: ColumnVector) -> Value:
        """Load elements with a stride; inactive lanes are zero."""
        element = buffer.type.element_type
        kind = ir.VectorType.get([piece.lanes], element)
        index_kind = ir.VectorType.get([piece.lanes], ir.IndexType.get())
        if isinstance(stride, int):
            steps = [ir.IntegerAttr.get(ir.IndexType.get(), lane * stride) for lane in range(piece.lanes)]
            offsets = create("arith.constant", index_kind, value=ir.DenseElementsAttr.get(steps, index_kind))
        else:
            step = create("vector.broadcast", index_kind, self.index(stride))
            offsets = create("arith.muli", index_kind, create("vector.step", index_kind), step)
        zero = self.zero(piece.lanes, element)
        return create("vector.gather", kind, buffer, position, offsets, self.mask(piece), zero)

    def load_lanes(self, buffer: ir.Value, position: ir.Value, stride: Dim, piece: ColumnVector) -> ir.Value:
        """Load elements with a stride as a vector; for stride 0, the one element."""
        if stride == 0:
            return self.load(buffer, position)
        if stride == 1:
            return self.load_vector(buffer, position, piece)
        return self.load_strided(buffer, position, stride, piece)

    def store_vector(
        self, value: ir.Value, buffer: ir.Value, position: ir.Value, piece: ColumnVector, whole: bool = False
    ) -> None:
        name = "vector.store" if whole or not piece.is_partial else "vector.maskedstore"
        if name == "vector.store":
            ir.Operation.create(name, operands=[value, buffer, position])
        else:
            ir.Operation.create(name, operands=[buffer, position, self.mask(piece), value])

    def loop(
        self,
        span: Span,
        body: Callable[..., Sequence[ir.Value] | None],
        carried: Sequence[ir.Value] = (),
        parallel: bool = False,
    ) -> list[ir.Value]:
        """Loop over the tiles of a span: `body(i, *carried)` with the loop's index, or an integer for a single tile."""
        if D.is_certain(lambda: 0 < span.stop - span.start <= span.size):
            return list(body(span.start, *carried) or ())
        if not parallel and D.is_certain(lambda: span.stop - span.start <= span.size):
            return if_any(span.start, span.stop, body, carried)
        bounds = (self.index(span.start), self.index(span.stop), self.index(span.size))
        return for_loop(*bounds, body, carried, parallel=parallel, rolled=not parallel)

    def loop_with_tail(
        self, parts: Sequence[Span], body: Callable[[LoopIndex, int], None], parallel: bool, apart: bool = False
    ) -> None:
        """Loop over the tiles of some spans, of which the second may be a smaller last tile: `body(i, which span)`.

        Threads divide them as one loop, so that no thread has the smaller tiles for itself, unless they are kept
        `apart`.
        """
        is_one = len(parts) == 2 and D.is_certain(lambda: parts[1].stop - parts[1].start <= parts[1].size)
        if not parallel or apart or not is_one:
            for number, span in enumerate(parts):
                self.loop(span, lambda i, number=number: body(i, number), parallel=parallel)
            return
        main, rest = parts

        def tile(i: ir.Value) -> None:
            either(compare("lt", i, self.index(main.stop)), lambda: body(i, 0), lambda: body(rest.start, 1))

        self.loop(Span(main.start, rest.start + main.size, main.size), tile, parallel=True)

    def range_loop(
        self, lower: ir.Value, upper: ir.Value, body: Callable[..., Sequence[ir.Value]], carried: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Loop from one index to another: `body(i, *carried)`."""
        return for_loop(lower, upper, self.index(1), body, carried, rolled=True)

    def add(self, a: ir.Value, b: ir.Value) -> Value:
        return create("arith.addi", a.type, a, b)

    def scaled(self, value: ir.Value, factor: Dim) -> ir.Value:
        return value if factor == 1 else create("arith.muli", value.type, value, self.index(factor))


def may_divide_inside(extent: Dim, position: LoopIndex) -> bool:
    """Return whether threads may divide the loops inside of one, at an index, too.

    It has a single iteration, or as many as a call says, which may be one: the batch of most calls is.
    """
    return isinstance(position, int) or not isinstance(extent, int)


@dataclass(frozen=True)
class Cursor:
    """A position in a flat buffer: an affine form of which some axes have values."""

    code: Code
    form: IndexExpr
    base: ir.Value | None = None
    offset: Dim = 0

    @staticmethod
    def start(code: Code, form: IndexExpr) -> Cursor:
        return Cursor(code, form, None, form.constant)

    def advance(self, axis: LoopAxis, value: LoopIndex) -> Cursor:
        """Substitute a value, an integer or an index, for an axis."""
        stride = self.form.stride(axis)
        if stride == 0:
            return self
        if isinstance(value, (int, SymbolicDim)):
            return self.shift(value * stride)
        moved = self.code.scaled(value, stride)
        base = moved if self.base is None else self.code.add(self.base, moved)
        return Cursor(self.code, self.form, base, self.offset)

    def shift(self, amount: Dim) -> Cursor:
        return Cursor(self.code, self.form, self.base, self.offset + amount) if amount != 0 else self

    def position(self, extra: Dim = 0) -> ir.Value:
        """Emit the position, `extra` elements further."""
        offset = self.offset + extra
        if self.base is None:
            return self.code.index(offset)
        return self.base if offset == 0 else self.code.add(self.base, self.code.index(offset))
