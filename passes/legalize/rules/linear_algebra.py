"""Default rules of linear algebra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import Expr, LoopBuilder, abs_, constant, select
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
        """Swap row k with the row from k on whose element in column k is largest; return whether they differ."""
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
        return row.differs(k)

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
                with loops.if_(work.bring_up(k)):
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
