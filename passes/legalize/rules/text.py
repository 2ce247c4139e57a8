"""Default rules of counts over sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Expr, TensorExpr, all_of, constant, minimum, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import fixed, shape_of
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.count_ngrams")
def count_ngrams(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    length = fixed(shape_of(op.grams)[1])
    steps = shape_of(op.x)[1]
    # A gram of one element has no gaps.
    skips = op.skips + 1 if length > 1 else 1

    def body(p: PrimBuilder, x: TensorExpr, grams: TensorExpr) -> TensorExpr:
        def term(n: Expr, gram: Expr, skip: Expr, start: Expr) -> Expr:
            indices = [start + (skip + 1) * j for j in range(length)]
            equal = [
                (place < steps) & x.at(n, minimum(place, steps - 1)).equals(grams.at(gram, j))
                for j, place in enumerate(indices)
            ]
            return select(all_of(equal), constant(1, "i64"), constant(0, "i64"))

        return p.reduce("add", shape_of(op.output), (skips, steps), term, name="count_ngrams")

    return b.call_prim(body, op.x, op.grams)
