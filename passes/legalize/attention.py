"""Attention as one prim function, for targets with schedules that never keep all scores.

The weights are not divided by their sums; the results are, of which there are fewer.
"""

from __future__ import annotations

import math
from typing import Any

from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import Expr, TensorExpr, constant, exp, select
from mirlo.passes.legalize.helpers import aligned, tensor_type, wide
from mirlo.passes.rules import decline


def fused_attention(op: Any, b: Any) -> Any:
    """Scores, softmax and the product with the values in one prim function."""
    kinds = [tensor_type(v) for v in (op.query, op.key, op.value)]
    if not all(kind.is_static for kind in kinds):
        return decline("a shape is known at run time only")
    batch, heads, length, size = kinds[0].static_shape
    _, shared, context, _ = kinds[1].static_shape
    if 0 in (batch, heads, length, size, context):
        return decline("there are no scores")
    groups = heads // shared
    value_size = kinds[2].static_shape[3]
    # The query heads that share a key head are an axis of their own: no map divides.
    leading = (batch, heads, length) if groups == 1 else (batch, shared, groups, length)
    factor = 1.0 / math.sqrt(size) if op.scale is None else op.scale

    def body(p: Any, q: TensorExpr, k: TensorExpr, v: TensorExpr, mask: TensorExpr | None) -> TensorExpr:
        rank = len(leading)

        def product(*axes: Expr) -> Expr:
            *row, t, d = axes
            return wide(q.at(*row, d)) * wide(k.at(row[0], row[1], t, d))

        scores = p.reduce("add", (*leading, context), (size,), product, name="scores")

        def masked(*axes: Expr) -> Expr:
            *row, t = axes
            value = scores.at(*axes) * factor
            hidden = constant(float("-inf"), value.dtype)
            if mask is not None:
                head = row[1] if groups == 1 else row[1] * groups + row[2]
                seen = aligned(mask, [row[0], head, row[-1], t])
                value = select(seen, value, hidden) if mask.dtype.is_bool else value + wide(seen)
            return select(t <= row[-1], value, hidden) if op.causal else value

        scaled = p.compute((*leading, context), masked, name="mask")
        peak = p.reduce("max", leading, (context,), lambda *at: scaled.at(*at), name="peak")
        if mask is not None:
            # A mask may hide all keys of a query, which then attends to nothing.
            top = peak
            shown = float("-inf")
            peak = p.compute(leading, lambda *row: select(top.at(*row) > shown, top.at(*row), 0.0), name="shift")
        weights = p.compute((*leading, context), lambda *at: exp(scaled.at(*at) - peak.at(*at[:rank])), name="weights")
        total = p.reduce("add", leading, (context,), lambda *at: weights.at(*at), name="total")

        def weighted(*axes: Expr) -> Expr:
            *row, d, t = axes
            return weights.at(*row, t) * wide(v.at(row[0], row[1], t, d))

        made = p.reduce("add", (*leading, value_size), (context,), weighted, name="weighted")

        def divided(*axes: Expr) -> Expr:
            divisor = total.at(*axes[:rank])
            if mask is not None:
                divisor = select(divisor.equals(0.0), 1.0, divisor)
            return (made.at(*axes) / divisor).cast(q.dtype)

        return p.compute((*leading, value_size), divided, name="divided")

    query = op.query
    if groups > 1:
        query = b.emit(Reshape, op.query, shape=(*leading, size))
    made = b.call_prim(body, query, op.key, op.value, op.mask, name="attention")
    return b.emit(Reshape, made, shape=(batch, heads, length, value_size)) if groups > 1 else made
