"""Vectors in the memory of a function: positions of accesses, loads, stores, gathers and prefetches.

Constants of a function are emitted once each, at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, Variable
from mirlo.dialects.core.value import create
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.tree import Loop
from mirlo.passes.schedule.vectors import splat
from mirlo.runtime.records import dataclass


class FunctionConstants:
    """Numbers, sizes, splats, masks and scratch memory at the start of a function."""

    def __init__(
        self, entry: ir.Block, location: ir.Location, scratch: Callable[[Sequence[int], ir.Type], ir.Value]
    ) -> None:
        self._entry, self._location, self._scratch = entry, location, scratch
        self._known: dict[object, ir.Value] = {}

    def index(self, value: Dim) -> ir.Value:
        """Return a number or a size."""
        kind = ir.IndexType.get()
        if isinstance(value, int):
            return self._at_start(value, lambda: _constant(kind, ir.IntegerAttr.get(kind, value)))
        return self._at_start(value, lambda: create("tir.size", kind, dim=ir.StringAttr.get(str(value))))

    def splat(self, lanes: int, element: ir.Attribute) -> ir.Value:
        """Return a vector whose lanes have the same value."""
        kind = ir.VectorType.get([lanes], element.type)
        return self._at_start((lanes, element), lambda: _constant(kind, ir.DenseElementsAttr.get_splat(kind, element)))

    def mask(self, lanes: int, active: Dim) -> ir.Value:
        """Return a mask whose first lanes are active."""
        kind = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        key = ("mask", lanes, active)
        if not isinstance(active, int):
            if key not in self._known:
                count = self.index(active)
                with ir.InsertionPoint.after(count.owner), self._location:
                    self._known[key] = create("vector.create_mask", kind, count)
            return self._known[key]
        on = [ir.BoolAttr.get(i < active) for i in range(lanes)]
        return self._at_start(key, lambda: _constant(kind, ir.DenseElementsAttr.get(on, kind)))

    def scratch(self, key: object, elements: int, kind: ir.Type) -> ir.Value:
        """Return memory for this many elements, the same for each use of a key."""
        if key not in self._known:
            self._known[key] = self._scratch([elements], kind)
        return self._known[key]

    def _at_start(self, key: object, emit: Callable[[], ir.Value]) -> ir.Value:
        if key not in self._known:
            with ir.InsertionPoint.at_block_begin(self._entry), self._location:
                self._known[key] = emit()
        return self._known[key]


def _constant(kind: ir.Type, value: ir.Attribute) -> ir.Value:
    return create("arith.constant", kind, value=value)


LINE_BYTES = 64
REGISTER_PART = 16
"""Bytes of the parts of a register within which x86 exchanges elements fastest; a register of AArch64 is one."""
READ_FEW, READ_AGAIN = 2, 3
"""Hints of prefetches: to the second and to the first cache."""


@dataclass(frozen=True)
class Piece:
    """A vector of columns, of which `active` lanes exist."""

    offset: int
    lanes: int
    active: Dim
    """A size that only the run time knows may exceed the number of lanes, or be negative."""

    @property
    def is_partial(self) -> bool:
        return not isinstance(self.active, int) or self.active < self.lanes


def pieces_of(columns: int, lanes: int, is_masked: bool) -> list[Piece]:
    """Divide columns into vectors; the rest is one partial vector, or ever narrower whole ones."""
    whole = columns // lanes * lanes
    pieces = [Piece(i, lanes, lanes) for i in range(0, whole, lanes)]
    offset, rest = whole, columns - whole
    if rest and is_masked:
        width = lanes
        while width // 2 >= rest and width > 4:
            width //= 2
        return [*pieces, Piece(offset, width, rest)]
    while rest:
        width = 1 << (rest.bit_length() - 1)
        pieces.append(Piece(offset, width, width))
        offset, rest = offset + width, rest - width
    return pieces


@dataclass(frozen=True)
class Position:
    """The place of an access: a value, a constant, and steps along loops."""

    base: ir.Value | None
    offset: Dim
    strides: Mapping[Variable, Dim]

    def shift(self, amount: Dim) -> Position:
        """Return the position this many elements ahead."""
        return Position(self.base, self.offset + amount, self.strides) if amount != 0 else self

    def step(self, loop: Variable) -> Dim:
        """Return the elements from one iteration of a loop to the next."""
        return self.strides.get(loop, 0)

    def stride(self, loop: Loop | None) -> Dim:
        """Return the elements from one iteration of a loop to the next; 0 without a loop."""
        return 0 if loop is None else self.step(loop.name)


@dataclass(frozen=True)
class OperandPositions:
    """The positions at which a tile reads rows and columns, and its prefetches."""

    rows: Position
    columns: Position
    ahead: tuple[Position | None, ...]
    """None where there is none."""


class VectorMemory:
    """Emits accesses to the memory of a function, whose constants are at its start."""

    def __init__(self, constants: FunctionConstants) -> None:
        self.constants = constants
        self.index = constants.index

    # Positions

    def place(self, form: IndexExpr, values: LoopValues, inner: Container[object] | None = None) -> Position:
        """Emit a position where `inner` loops begin: those without a value, if they are not named."""
        outside = [atom for atom in form.terms if (atom in values if inner is None else atom not in inner)]
        outer = values.with_numbers(IndexExpr({atom: form.terms[atom] for atom in outside}))
        strides = {atom: count for atom, count in form.terms.items() if isinstance(atom, (int, str))}
        terms = IndexExpr(outer.terms)
        return Position(values.emit(terms) if terms.terms else None, form.constant + outer.constant, strides)

    def moved(self, place: Position, loop: Variable, by: LoopValue) -> Position:
        """Emit a position this many iterations of a loop further."""
        stride = place.step(loop)
        if stride == 0:
            return place
        if isinstance(by, int):
            return place.shift(stride * by)
        assert isinstance(by, ir.Value)
        moved = by if stride == 1 else create("arith.muli", by.type, by, self.index(stride))
        base = moved if place.base is None else create("arith.addi", moved.type, place.base, moved)
        return Position(base, place.offset, place.strides)

    def at(self, place: Position, extra: Dim = 0) -> ir.Value:
        """Emit a position, this many elements ahead."""
        offset = place.offset + extra
        if place.base is None:
            return self.index(offset)
        return place.base if offset == 0 else create("arith.addi", place.base.type, place.base, self.index(offset))

    # Loads and stores

    def load(self, buffer: ir.Value, position: ir.Value, piece: Piece, whole: bool = False) -> ir.Value:
        """Load a vector of columns; `whole` where the columns beyond the last one are memory too."""
        kind = ir.VectorType.get([piece.lanes], buffer.type.element_type)
        if whole or not piece.is_partial:
            return create("vector.load", kind, buffer, position)
        return create("vector.maskedload", kind, buffer, position, self.mask(piece), self._zeros(piece, kind))

    def load_lanes(self, buffer: ir.Value, position: ir.Value, stride: Dim, piece: Piece) -> ir.Value:
        """Load elements with a stride as a vector; for stride 0, the one element."""
        if stride == 0:
            return create("memref.load", buffer.type.element_type, buffer, position)
        if stride == 1:
            return self.load(buffer, position, piece)
        return self.gather(buffer, position, stride, piece)

    def store(self, value: ir.Value, buffer: ir.Value, position: ir.Value, piece: Piece, whole: bool = False) -> None:
        """Store a vector of columns; `whole` where the columns beyond the last one are memory too."""
        if whole or not piece.is_partial:
            ir.Operation.create("vector.store", operands=[value, buffer, position])
        else:
            ir.Operation.create("vector.maskedstore", operands=[buffer, position, self.mask(piece), value])

    def gather(self, buffer: ir.Value, position: ir.Value, stride: Dim, piece: Piece) -> ir.Value:
        """Load elements with a stride; inactive lanes are zero."""
        kind = ir.VectorType.get([piece.lanes], buffer.type.element_type)
        index_kind = ir.VectorType.get([piece.lanes], ir.IndexType.get())
        step = splat(self.index(stride), piece.lanes)
        offsets = create("arith.muli", index_kind, create("vector.step", index_kind), step)
        zeros = self._zeros(piece, kind)
        return create("vector.gather", kind, buffer, position, offsets, self.mask(piece), zeros)

    def mask(self, piece: Piece) -> ir.Value:
        """Return the mask of the lanes that exist."""
        return self.constants.mask(piece.lanes, piece.active)

    def zeros(self, lanes: int, element: ir.Type) -> ir.Value:
        """Return a vector of zeros."""
        is_float = isinstance(element, ir.FloatType)
        zero = ir.FloatAttr.get(element, 0.0) if is_float else ir.IntegerAttr.get(element, 0)
        return self.constants.splat(lanes, zero)

    def _zeros(self, piece: Piece, kind: ir.Type) -> ir.Value:
        return self.zeros(piece.lanes, kind.element_type)

    # Prefetches

    def fetch(self, buffer: ir.Value, position: ir.Value, elements: int) -> None:
        """Emit prefetches of the cache lines of some elements, which may be out of bounds and are needed soon."""
        last = self.index(max(0, buffer.type.shape[0] - elements))
        inside = create("arith.minsi", position.type, position, last)
        for shift in range(0, elements, LINE_BYTES // element_bytes(buffer.type.element_type)):
            at = create("arith.addi", inside.type, inside, self.index(shift)) if shift else inside
            self.touch(buffer, at, READ_AGAIN)

    def touch(self, buffer: ir.Value, position: ir.Value, hint: int) -> None:
        """Emit the prefetch of the cache line of an element."""
        memref.PrefetchOp(buffer, [position], isWrite=False, localityHint=hint, isDataCache=True)

    def within(self, place: Position, buffer: ir.Value, read: Dim) -> Position:
        """Emit a position from which this many elements, and the rest of a cache line, are in a buffer.

        Once a tile, in place of once a k-step: registers of the innermost loop hold what it multiplies.
        """
        line = LINE_BYTES // element_bytes(buffer.type.element_type)
        first, last = self.at(place), self.index(D.maximum(0, buffer.type.shape[0] - read - line))
        return Position(create("arith.minsi", first.type, first, last), 0, place.strides)
