"""Default rules of linear algebra."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import Expr, LoopBuilder, abs_, constant, select, sqrt
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import shape_of, wide, wide_dtype
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


class Elimination:
    """Rows of a matrix in scratch memory, from which columns are eliminated."""

    def __init__(self, loops: LoopBuilder, rows: Dim, columns: Dim, element: DType):
        self.loops, self.rows, self.columns = loops, rows, columns
        self.matrix = loops.scratch((D.maximum(rows, 1), D.maximum(columns, 1)), element)

    def bring_up(self, k: Expr) -> Expr:
        """Swap row k with the row from k on whose element in column k is largest; return that row."""
        loops, matrix = self.loops, self.matrix
        pivot = loops.variable(k, "index")
        for i in loops.range(k + 1, self.rows):
            with loops.if_(abs_(matrix[i, k]) > abs_(matrix[pivot.get(), k])):
                pivot.set(i)
        row = loops.let(pivot.get())
        with loops.if_(row.differs(k)):
            for j in loops.range(self.columns):
                kept = loops.let(matrix[k, j])
                matrix[k, j] = matrix[row, j]
                matrix[row, j] = kept
        return row

    def subtract(self, i: Expr, k: Expr, divisor: Expr) -> None:
        """Subtract the multiple of row k from row i that makes column k zero."""
        factor = self.loops.let(self.matrix[i, k] / divisor)
        for j in self.loops.range(self.columns):
            self.matrix[i, j] = self.matrix[i, j] - factor * self.matrix[k, j]


@legalize("relax.det")
def det(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Compute the product of the pivots of an elimination with partial pivoting."""
    *batch, size, _ = shape_of(op.x)

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        kind = wide_dtype(x.dtype)
        work = Elimination(loops, size, size, kind)
        for at in loops.nest(batch):
            for i, j in loops.nest((size, size)):
                work.matrix[i, j] = wide(x[[*at, i, j]])
            product = loops.variable(1.0, kind)
            for k in loops.range(size):
                with loops.if_(work.bring_up(k).differs(k)):
                    product.set(product.get() * -1.0)
                top = loops.let(work.matrix[k, k])
                product.set(product.get() * top)
                divisor = loops.let(select(top.equals(0.0), top + 1.0, top))  # a column of zeros: the product is 0
                for i in loops.range(k + 1, size):
                    work.subtract(i, k, divisor)
            output[at] = product.get().cast(x.dtype)

    return b.call_loops(body, op.x)


@legalize("relax.inverse")
def inverse(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Eliminate above and below the diagonal of the matrix augmented by the identity."""
    *batch, size, _ = shape_of(op.x)

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        kind = wide_dtype(x.dtype)
        work = Elimination(loops, size, 2 * size, kind)
        for at in loops.nest(batch):
            for i, j in loops.nest((size, size)):
                work.matrix[i, j] = wide(x[[*at, i, j]])
                work.matrix[i, j + size] = select(i.equals(j), constant(1.0, kind), constant(0.0, kind))
            for k in loops.range(size):
                work.bring_up(k)
                top = loops.let(work.matrix[k, k])
                for i in loops.range(size):
                    with loops.if_(i.differs(k)):
                        work.subtract(i, k, top)
                for j in loops.range(2 * size):
                    work.matrix[k, j] = work.matrix[k, j] / top
            for i, j in loops.nest((size, size)):
                output[[*at, i, j]] = work.matrix[i, j + size].cast(x.dtype)

    return b.call_loops(body, op.x)


@legalize("relax.cholesky")
def cholesky(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Compute row by row; the elements of a row need those before them and the rows above."""
    *batch, size, _ = shape_of(op.x)

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        kind = wide_dtype(x.dtype)
        work = loops.scratch((D.maximum(size, 1), D.maximum(size, 1)), kind)
        for at in loops.nest(batch):
            for i, j in loops.nest((size, size)):
                work[i, j] = select(j <= i, wide(x[[*at, i, j]]), constant(0.0, kind))
            total = loops.variable(0.0, kind)
            for i in loops.range(size):
                for j in loops.range(i + 1):
                    total.set(work[i, j])
                    for k in loops.range(j):
                        total.set(total.get() - work[i, k] * work[j, k])
                    rest = loops.let(total.get())
                    with loops.if_(i.equals(j)):
                        work[i, j] = select(rest > 0.0, sqrt(rest), constant(math.nan, kind))
                    with loops.if_(i.differs(j)):
                        work[i, j] = rest / work[j, j]
            for i, j in loops.nest((size, size)):
                output[[*at, i, j]] = work[i, j].cast(x.dtype)

    return b.call_loops(body, op.x)


@legalize("relax.triangular_solve")
def triangular_solve(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Substitute rows in the order in which they are known: downwards for a lower triangle."""
    *batch, size, _ = shape_of(op.x)
    columns = shape_of(op.b)[-1]
    transposed, unit = op.transposed, op.unit_diagonal
    downwards = op.lower != transposed

    def body(loops: LoopBuilder, x: Buffer, right: Buffer, output: Buffer) -> None:
        kind = wide_dtype(x.dtype)
        work = loops.scratch((D.maximum(size, 1), D.maximum(columns, 1)), kind)
        for at in loops.nest(batch):
            for i, j in loops.nest((size, columns)):
                work[i, j] = wide(right[[*at, i, j]])
            for step in loops.range(size):
                row = loops.let(step if downwards else -step + (size - 1))
                for before in loops.range(step):
                    other = loops.let(before if downwards else -before + (size - 1))
                    factor = loops.let(wide(x[[*at, other, row] if transposed else [*at, row, other]]))
                    for j in loops.range(columns):
                        work[row, j] = work[row, j] - factor * work[other, j]
                if not unit:
                    divisor = loops.let(wide(x[[*at, row, row]]))
                    for j in loops.range(columns):
                        work[row, j] = work[row, j] / divisor
            for i, j in loops.nest((size, columns)):
                output[[*at, i, j]] = work[i, j].cast(x.dtype)

    return b.call_loops(body, op.x, op.b)


@legalize("relax.lu")
def lu(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Eliminate below the diagonal with partial pivoting, and keep the factors where the zeros are."""
    *batch, rows, columns = shape_of(op.x)

    def body(loops: LoopBuilder, x: Buffer, factors: Buffer, pivots: Buffer) -> None:
        kind = wide_dtype(x.dtype)
        work = Elimination(loops, rows, columns, kind)
        matrix = work.matrix
        for at in loops.nest(batch):
            for i, j in loops.nest((rows, columns)):
                matrix[i, j] = wide(x[[*at, i, j]])
            for k in loops.range(D.minimum(rows, columns)):
                pivots[[*at, k]] = work.bring_up(k).cast("i32")
                top = loops.let(matrix[k, k])
                with loops.if_(top.differs(0.0)):
                    for i in loops.range(k + 1, rows):
                        factor = loops.let(matrix[i, k] / top)
                        matrix[i, k] = factor
                        for j in loops.range(k + 1, columns):
                            matrix[i, j] = matrix[i, j] - factor * matrix[k, j]
            for i, j in loops.nest((rows, columns)):
                factors[[*at, i, j]] = matrix[i, j].cast(x.dtype)

    return b.call_loops(body, op.x)
