"""Attention as one prim function, for targets with schedules that never store all scores.

The results are divided by the sums instead of the weights: there are fewer of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import INDEX, Axis, Expr, TensorExpr, constant, exp, select, tanh, within
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import aligned, shape_of, tensor_type, wide, wide_dtype
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


def fused_attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Emit scores, softmax and the product with the values in one prim function, of all kinds of attention."""
    context = shape_of(op.key)[2]
    past = context - shape_of(op.query)[2] if op.at_end else 0
    may_see_nothing = op.mask is not None or not D.is_certain(lambda: context >= 1 and past >= 0)
    attention = _attention_of(op, shape_of(op.key)[1], shape_of(op.value)[3], context)
    if isinstance(attention, Decline):
        return attention
    attention = replace(attention, past=past, is_causal=op.causal, may_see_nothing=may_see_nothing)
    scales = [getattr(op, name, None) for name in ("key_scale", "value_scale")]
    return _emit(op, b, attention, attention.build, op.key, op.value, op.mask, *scales)


def fused_paged_attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Emit the rows of caches in pages, and attention to them, in one prim function."""
    pages, rows, shared, value_size = shape_of(op.value_cache)
    batch, most = shape_of(op.table)
    if not isinstance(rows, int) or rows < 2 or 0 in (pages, shape_of(op.key_cache)[0]):
        return decline("pages have one row, or as many as is known at run time only", rows=str(rows))
    attention = _attention_of(op, shared, value_size, most * rows)
    if isinstance(attention, Decline):
        return attention

    def body(p: PrimBuilder, q: TensorExpr, k: TensorExpr, v: TensorExpr, *rest: TensorExpr | None) -> TensorExpr:
        mask, sinks, key_scale, value_scale, table, lengths = rest
        assert table is not None and lengths is not None

        def read(cache: TensorExpr) -> TensorExpr:
            def element(*axes: Expr) -> Expr:
                return paged_row(cache, table, lengths, axes, (axes[2] // rows, axes[2] % rows))

            return p.compute((batch, shared, most * rows, cache.shape[3]), element, name="paged_rows")

        scales = (None if cache is None else read(cache) for cache in (key_scale, value_scale))
        return attention.build(p, q, read(k), read(v), mask, sinks, *scales)

    kind = tensor_type(op.query).dtype
    is_narrow = wide_dtype(kind) is not kind  # rows are converted where they are read, queries before
    result = _emit(
        op, b, attention, body, op.key_cache, op.value_cache, op.mask, op.key_scale, op.value_scale, op.table,
        op.lengths, query=b.emit(OPS["cast"], op.query, dtype=wide_dtype(kind)) if is_narrow else None,
    )  # fmt: skip
    return b.emit(OPS["cast"], result, dtype=kind) if is_narrow else result


def paged_row(
    cache: TensorExpr, table: TensorExpr, lengths: TensorExpr, axes: Sequence[Expr], place: tuple[Expr, Expr]
) -> Expr:
    """Return an element of a row of a sequence, zero after the last one.

    `axes` are the sequence, the head, the row and the element, `place` the page of the sequence and its row.
    """
    n, h, t, d = axes
    page = within(table.at(n, place[0]), cache.shape[0])
    return select(t < lengths.at(n).cast(INDEX), cache.at(page, place[1], h, d), constant(0, cache.dtype))


def _attention_of(op: ir.OpView, shared: Dim, value_size: Dim, context: Dim) -> _Attention | Decline:
    """Return the attention of queries to this many keys, all of which are seen."""
    batch, heads, length, size = shape_of(op.query)
    if not (isinstance(heads, int) and isinstance(shared, int)):
        return decline("the number of heads is known at run time only")
    if not (isinstance(size, int) and isinstance(value_size, int)):
        return decline("the size of a head is known at run time only")
    if 0 in (batch, heads, length, size, context):
        return decline("there are no scores")
    groups = heads // shared
    # The query heads that share a key head have an axis of their own, so that no map divides.
    leading = (batch, heads, length) if groups == 1 else (batch, shared, groups, length)
    return _Attention(
        leading, context, size, value_size, groups, 0, factor=1.0 / math.sqrt(size) if op.scale is None else op.scale,
        is_causal=False, softcap=op.softcap, may_see_nothing=True,
    )  # fmt: skip


def _emit(
    op: ir.OpView, b: LegalizeBuilder, attention: _Attention, build: Callable[..., TensorExpr],
    key: ir.Value, value: ir.Value, mask: ir.Value | None, *others: ir.Value | None, query: ir.Value | None = None,
) -> ir.Value:  # fmt: skip
    """Emit a call of the prim function that `build` builds of queries, keys, values, mask, sinks and others."""
    query = op.query if query is None else query
    if attention.groups > 1:
        query = b.emit(Reshape, query, shape=(*attention.leading, attention.size))
    sinks = _sinks(op, b, attention.leading)
    result = b.call_prim(build, query, key, value, mask, sinks, *others, name="attention")
    shape = (*shape_of(op.query)[:3], attention.value_size)
    return b.emit(Reshape, result, shape=shape) if attention.groups > 1 else result


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
            return weights.at(*row, t) * v.at(row[0], row[1], t, d).cast(weights.dtype)

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
            own = wide(q.at(*row, d))
            return own * k.at(row[0], row[1], t, d).cast(own.dtype)

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
