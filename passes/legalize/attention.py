"""Attention as one prim function, for targets with schedules that never store all scores.

The results are divided by the sums instead of the weights: there are fewer of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import Axis, Expr, TensorExpr, constant, exp, select, tanh
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import aligned, shape_of, wide
from mirlo.passes.rules import Decline, decline

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


def fused_attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Emit scores, softmax and the product with the values in one prim function, of all kinds of attention."""
    sizes = _heads_of(op)
    if isinstance(sizes, Decline):
        return sizes
    heads, shared, size, value_size = sizes
    batch, _, length, _ = shape_of(op.query)
    context = shape_of(op.key)[2]
    if 0 in (batch, heads, length, size, context):
        return decline("there are no scores")
    groups = heads // shared
    # The query heads that share a key head have an axis of their own, so that no map divides.
    leading = (batch, heads, length) if groups == 1 else (batch, shared, groups, length)
    past = context - length if op.at_end else 0
    attention = _Attention(
        leading, context, size, value_size, groups, past,
        factor=1.0 / math.sqrt(size) if op.scale is None else op.scale,
        is_causal=op.causal, softcap=op.softcap,
        may_see_nothing=op.mask is not None or not D.is_certain(lambda: context >= 1 and past >= 0),
    )  # fmt: skip
    query = op.query
    if groups > 1:
        query = b.emit(Reshape, op.query, shape=(*leading, size))
    sinks = _sinks(op, b, leading)
    scales = [getattr(op, name, None) for name in ("key_scale", "value_scale")]
    result = b.call_prim(attention.build, query, op.key, op.value, op.mask, sinks, *scales, name="attention")
    return b.emit(Reshape, result, shape=(batch, heads, length, value_size)) if groups > 1 else result


@dataclass(frozen=True)
class _Attention:
    """The sizes of an attention, and its computation."""

    leading: tuple[Dim, ...]
    """The axes of a row of scores: batch, heads and, where several share a key head, their group; queries."""
    context: Dim
    size: int
    value_size: int
    groups: int
    past: Dim
    """Keys before the one of the first query."""
    factor: float
    is_causal: bool
    softcap: float | None
    may_see_nothing: bool
    """Whether a mask, or the number of keys, may hide all keys of a query: its row is zero."""

    def build(
        self,
        p: PrimBuilder,
        q: TensorExpr,
        k: TensorExpr,
        v: TensorExpr,
        mask: TensorExpr | None,
        sinks: TensorExpr | None,
        key_scale: TensorExpr | None,
        value_scale: TensorExpr | None,
    ) -> TensorExpr:
        """Return the results, in the body of a prim function."""
        scaled, *factors = self._scores(p, q, k, mask, key_scale, value_scale)
        leading, context, rank = self.leading, self.context, len(self.leading)
        peak = p.reduce("max", leading, (context,), lambda *at: scaled.at(*at), name="peak")
        if self.may_see_nothing:
            top = peak
            shown = float("-inf")
            peak = p.compute(leading, lambda *row: select(top.at(*row) > shown, top.at(*row), 0.0), name="shift")
        weights = p.compute((*leading, context), lambda *at: exp(scaled.at(*at) - peak.at(*at[:rank])), name="weights")
        total = p.reduce("add", leading, (context,), lambda *at: weights.at(*at), name="total")
        if factors:
            own, scales = weights, factors[0]
            weights = p.compute((*leading, context), lambda *at: own.at(*at) * scales.at(*at), name="scaled_weights")

        def weighted(*axes: Expr) -> Expr:
            *row, d, t = axes
            return weights.at(*row, t) * wide(v.at(row[0], row[1], t, d))

        weighted_sum = p.reduce("add", (*leading, self.value_size), (context,), weighted, name="weighted")

        def divided(*axes: Expr) -> Expr:
            row = axes[:rank]
            divisor = total.at(*row)
            if sinks is not None:  # here and not between the contractions, where schedules read no other tensors
                divisor = divisor + exp(wide(sinks.at(*row[1:-1])) - peak.at(*row))
            if self.may_see_nothing:
                divisor = select(divisor.equals(0.0), 1.0, divisor)
            return (weighted_sum.at(*axes) / divisor).cast(q.dtype)

        return p.compute((*leading, self.value_size), divided, name="divided")

    def _scores(
        self,
        p: PrimBuilder,
        q: TensorExpr,
        k: TensorExpr,
        mask: TensorExpr | None,
        key_scale: TensorExpr | None,
        value_scale: TensorExpr | None,
    ) -> list[TensorExpr]:
        """Return the scaled and masked products of queries and keys, and the scales of the values if there are any.

        They are copied for each score, as schedules read no other tensors between the contractions.
        """

        def product(*axes: Expr) -> Expr:
            *row, t, d = axes
            return wide(q.at(*row, d)) * wide(k.at(row[0], row[1], t, d))

        scores = p.reduce("add", (*self.leading, self.context), (self.size,), product, name="scores")

        def masked(*axes: Expr) -> Expr:
            *row, t = axes
            value = scores.at(*axes) * self.factor
            if key_scale is not None:
                value = value * wide(key_scale.at(row[0], row[1], t, 0))
            if self.softcap is not None:
                value = tanh(value * (1.0 / self.softcap)) * self.softcap
            hidden = constant(float("-inf"), value.dtype)
            if mask is not None:
                head = row[1] if self.groups == 1 else row[1] * self.groups + row[2]
                seen = aligned(mask, [row[0], head, row[-1], t])
                value = select(seen, value, hidden) if mask.dtype.is_bool else value + wide(seen)
            return select(t <= row[-1] + self.past, value, hidden) if self.is_causal else value

        shape = (*self.leading, self.context)
        axes = [Axis(i) for i in range(len(shape))]
        values = [masked(*axes)]
        if value_scale is not None:
            values.append(wide(value_scale.at(axes[0], axes[1], axes[-1], 0)))
        return p.block("mask", shape, (), values)


def _sinks(op: ir.OpView, b: LegalizeBuilder, leading: tuple[Dim, ...]) -> ir.Value | None:
    """Return the sinks by the axes of heads, without those of batches and queries; None without sinks."""
    sinks = getattr(op, "sinks", None)
    return sinks if sinks is None or len(leading) == 3 else b.emit(Reshape, sinks, shape=leading[1:-1])


def _heads_of(op: ir.OpView) -> tuple[int, int, int, int] | Decline:
    """Return the static head counts of query and keys, and the sizes of a key's and a value's head."""
    sizes = [shape_of(op.query)[1], shape_of(op.key)[1], shape_of(op.query)[3], shape_of(op.value)[3]]
    heads, shared, size, value_size = sizes
    if not (isinstance(heads, int) and isinstance(shared, int)):
        return decline("the number of heads is known at run time only")
    if not (isinstance(size, int) and isinstance(value_size, int)):
        return decline("the size of a head is known at run time only")
    return heads, shared, size, value_size
