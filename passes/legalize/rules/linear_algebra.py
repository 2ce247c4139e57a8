"""Default rules of linear algebra."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.tir.compute import LoopBuilder, abs_, select
from mirlo.passes.legalize.helpers import shape_of, wide, wide_dtype
from mirlo.passes.rules import legalize


@legalize("relax.det")
def det(op: Any, b: Any) -> Any:
    """Elimination with the largest pivot of each column: the product of the pivots."""
    *batch, size, _ = shape_of(op.x)

    def body(loops: LoopBuilder, x: Any, output: Any) -> None:
        kind = wide_dtype(x.dtype)
        matrix = loops.scratch((max(size, 1), max(size, 1)), kind)
        for at in loops.nest(batch):
            for i, j in loops.nest((size, size)):
                matrix[i, j] = wide(x[[*at, i, j]])
            product = loops.variable(1.0, kind)
            for k in loops.range(size):
                pivot = loops.variable(k, "index")
                for i in loops.range(k + 1, size):
                    with loops.if_(abs_(matrix[i, k]) > abs_(matrix[pivot.get(), k])):
                        pivot.set(i)
                row = loops.let(pivot.get())
                with loops.if_(row.differs(k)):
                    product.set(product.get() * -1.0)
                    for j in loops.range(k, size):
                        kept = loops.let(matrix[k, j])
                        matrix[k, j] = matrix[row, j]
                        matrix[row, j] = kept
                top = loops.let(matrix[k, k])
                product.set(product.get() * top)
                divisor = loops.let(select(top.equals(0.0), top + 1.0, top))  # a column of zeros: the product is 0
                for i in loops.range(k + 1, size):
                    factor = loops.let(matrix[i, k] / divisor)
                    for j in loops.range(k, size):
                        matrix[i, j] = matrix[i, j] - factor * matrix[k, j]
            output[at] = product.get().cast(x.dtype)

    return b.call_loops(body, op.x)
