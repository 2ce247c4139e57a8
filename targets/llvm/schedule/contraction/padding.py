"""Copies of operands with padding, or converted to the type of the product."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor, LoopIndex, may_divide_inside
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span, column_vectors
from mirlo.targets.llvm.schedule.cost import COPY_VECTORS

Convert = Callable[[ir.Value, int], ir.Value]
"""Converts a vector of elements, with this many lanes, to the stored type."""


class PaddedCopy:
    """Copies a tensor into scratch memory, surrounded by its padding value.

    `convert` converts a vector of elements to the stored type `kind`.
    """

    def __init__(self, code: Code, side: ContractionOperand, lanes: int, masked: bool, convert: Convert, kind: ir.Type):
        self.code = code
        self.convert = convert
        self.lanes = lanes
        self.masked = masked
        self.shape = side.padded_shape or side.access.shape
        self.before = side.padding or (0,) * len(self.shape)
        self.source_shape = side.access.shape
        self.outside = side.access.outside
        self.source = code.flat(side.access.value)
        self.target = code.scratch(prod(self.shape), kind)
        sizes = zip(self.shape, self.source_shape, self.before, strict=True)
        self.padded = [size != old or before > 0 for size, old, before in sizes]

    def emit(self) -> ir.Value:
        """Emit the copy; return its buffer."""
        last = max((dim for dim, is_padded in enumerate(self.padded) if is_padded), default=-1)
        for dim in range(last):  # apart from the copy, whose loops have nothing between them: threads divide all
            if self.padded[dim]:
                self._rows(dim, partial(self._fill_around, dim))
        if last < 0:
            self._copy(self._start(), self._start(), prod(self.source_shape), parallel=True)
        else:
            self._rows(last, partial(self._padded_row, last))
        return self.target

    def _start(self) -> Cursor:
        return Cursor.start(self.code, IndexExpr())

    def _held(self, dim: int) -> tuple[Dim, Dim]:
        """Return the first index of the copy that has an element, and how many do: as many as are read."""
        if not self.padded[dim]:
            return 0, self.shape[dim]
        first = D.minimum(self.before[dim], self.shape[dim])
        return first, D.minimum(self.source_shape[dim], self.shape[dim] - first)

    def _rows(self, dims: int, each: Callable[[Cursor, Cursor], None]) -> None:
        """Emit loops over the elements of the first dims: `each(source, target)`."""

        def below(dim: int, source: Cursor, target: Cursor, parallel: bool) -> None:
            if dim == dims:
                each(source, target)
                return
            inner_source, inner_target = prod(self.source_shape[dim + 1 :]), prod(self.shape[dim + 1 :])
            first, held = self._held(dim)
            inside = target.shift(first * inner_target)

            def row(i: LoopIndex) -> None:
                still = parallel and may_divide_inside(held, i)
                below(dim + 1, _moved(source, i, inner_source), _moved(inside, i, inner_target), still)

            if held != 0:
                self.code.loop(Span(0, held, 1), row, parallel=parallel)

        below(0, self._start(), self._start(), True)

    def _fill_around(self, dim: int, source: Cursor, target: Cursor) -> None:
        inner = prod(self.shape[dim + 1 :])
        first, held = self._held(dim)
        rest = self.shape[dim] - first - held
        if first != 0:
            self._fill(target, first * inner)
        if rest != 0:
            self._fill(target.shift((first + held) * inner), rest * inner)

    def _padded_row(self, dim: int, source: Cursor, target: Cursor) -> None:
        inner = prod(self.shape[dim + 1 :])
        first, held = self._held(dim)
        if held != 0:
            self._copy(source, target.shift(first * inner), held * inner)
        self._fill_around(dim, source, target)

    def _copy(self, source: Cursor, target: Cursor, count: Dim, parallel: bool = False) -> None:
        def move(extra: LoopIndex, piece: ColumnVector) -> None:
            s, t = _moved(source, extra), _moved(target, extra)
            value = self.code.load_vector(self.source, s.position(piece.offset), piece)
            self.code.store_vector(self.convert(value, piece.lanes), self.target, t.position(piece.offset), piece)

        self._run(count, move, parallel)

    def _fill(self, target: Cursor, count: Dim) -> None:
        def write(extra: LoopIndex, piece: ColumnVector) -> None:
            assert self.outside is not None
            value = self.convert(self.code.splat_constant(piece.lanes, self.outside), piece.lanes)
            self.code.store_vector(value, self.target, _moved(target, extra).position(piece.offset), piece)

        self._run(count, write)

    def _run(self, count: Dim, each: Callable[[LoopIndex, ColumnVector], None], parallel: bool = False) -> None:
        """Emit `each(start, piece)` for vectors that cover `count` elements."""
        step = self.lanes * COPY_VECTORS
        whole = count // step * step

        def several(start: LoopIndex) -> None:
            for piece in column_vectors(step, self.lanes, self.masked):
                each(start, piece)

        if whole != 0:
            self.code.loop(Span(0, whole, step), several, parallel=parallel)
        rest: Dim = count - whole
        if not isinstance(rest, int):
            for piece in (ColumnVector(i, self.lanes, rest - i) for i in range(0, step, self.lanes)):
                each(whole, piece)
            return
        for piece in column_vectors(rest, self.lanes, self.masked):
            each(whole, piece)


def _moved(cursor: Cursor, value: LoopIndex, stride: Dim = 1) -> Cursor:
    """Return a cursor moved by `value * stride`, the value an integer or an index."""
    walk = LoopAxis(-1, 1, False)
    return Cursor(cursor.code, IndexExpr({walk.id: stride}), cursor.base, cursor.offset).advance(walk, value)
