"""Default rules of attention: matrix products and softmax, which have schedules of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.matmul import Matmul
from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import Expr, ExprLike, TensorExpr, constant, is_within, rsqrt, select, tanh
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder
from mirlo.passes.legalize.attention import paged_row
from mirlo.passes.legalize.helpers import aligned, shape_of, tensor_type, wide
from mirlo.passes.legalize.rules.softmax import softmax_blocks
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


def _scale_of(op: ir.OpView, size: Dim) -> ExprLike:
    """Return the factor of the scores, by default the reciprocal of the square root of the size of a head."""
    if op.scale is not None:
        result: float = op.scale
        return result
    return 1.0 / math.sqrt(size) if isinstance(size, int) else rsqrt(constant(size, "f32"))


@legalize("relax.attention", "relax.attention_with_sinks")
def attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    batch, heads, length, size = shape_of(op.query)
    _, shared, context, _ = shape_of(op.key)
    value_size = shape_of(op.value)[3]
    # The query heads that share a key head are rows of one product with it.
    rows = (batch, shared, heads // shared * length)
    query = _reshape(b, op.query, (*rows, size))
    scores = b.emit(Matmul, query, op.key, transpose_rhs=True)
    scores = _reshape(b, scores, (batch, heads, length, context))

    past = context - length if op.at_end else 0

    def weights_of(p: PrimBuilder, scores: TensorExpr, mask: TensorExpr | None, sinks: TensorExpr | None) -> TensorExpr:
        factor = _scale_of(op, size)

        def element(*axes: Expr) -> Expr:
            value = wide(scores.at(*axes))
            value = value * (factor.cast(value.dtype) if isinstance(factor, Expr) else factor)
            if op.softcap is not None:
                value = tanh(value * (1.0 / op.softcap)) * op.softcap
            hidden = constant(float("-inf"), value.dtype)
            if mask is not None:
                seen = aligned(mask, axes)
                value = select(seen, value, hidden) if mask.dtype.is_bool else value + wide(seen)
            if op.causal:
                value = select(axes[3] <= axes[2] + past, value, hidden)
            return value

        scaled = p.compute(scores.shape, element, name="mask")
        # A mask may hide all keys of a query, which then attends to nothing.
        sink = None if sinks is None else lambda *row: sinks.at(row[1])
        return softmax_blocks(p, scaled, 3, scores.dtype, mask is not None or op.at_end, sink)

    sinks = getattr(op, "sinks", None)
    weights = b.call_prim(weights_of, scores, op.mask, sinks, name="attention_weights")
    weights = _reshape(b, weights, (*rows, context))
    return _reshape(b, b.emit(Matmul, weights, op.value), (batch, heads, length, value_size))


def _reshape(b: LegalizeBuilder, value: ir.Value, shape: tuple[Dim, ...]) -> ir.Value:
    return b.value(value) if shape_of(value) == shape else b.emit(Reshape, value, shape=shape)


@legalize("relax.attention_with_scales")
def attention_with_scales(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Legalize to attention to keys and values that are multiplied by their scales first."""
    key, value = b.emit(OPS["multiply"], op.key, op.key_scale), b.emit(OPS["multiply"], op.value, op.value_scale)
    options = {name: getattr(op, name) for name in ("scale", "causal", "at_end", "softcap")}
    if op.sinks is None:
        return b.emit(OPS["attention"], op.query, key, value, op.mask, **options)
    return b.emit(OPS["attention_with_sinks"], op.query, key, value, op.mask, op.sinks, **options)


@legalize("relax.paged_attention")
def paged_attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Legalize to attention to a copy of the rows of each sequence."""
    if shape_of(op.key_cache)[0] == 0:
        return decline("there are no pages")
    kind = tensor_type(op.query).dtype
    rows = [_rows_of(op, b, cache) for cache in (op.key_cache, op.value_cache)]
    key, value = (each if tensor_type(each).dtype is kind else b.emit(OPS["cast"], each, dtype=kind) for each in rows)
    options = {name: getattr(op, name) for name in ("scale", "softcap")}
    if op.key_scale is not None:
        scales = [_rows_of(op, b, cache) for cache in (op.key_scale, op.value_scale)]
        return b.emit(OPS["attention_with_scales"], op.query, key, value, op.mask, *scales, op.sinks, **options)
    if op.sinks is not None:
        return b.emit(OPS["attention_with_sinks"], op.query, key, value, op.mask, op.sinks, **options)
    return b.emit(OPS["attention"], op.query, key, value, op.mask, **options)


def _rows_of(op: ir.OpView, b: LegalizeBuilder, cache: ir.Value) -> ir.Value:
    """Return the rows of each sequence [B, HKV, M * P, D]: a copy, zero after the last one."""
    _, rows, heads, size = shape_of(cache)
    batch, most = shape_of(op.table)

    def body(p: PrimBuilder, cache: TensorExpr, table: TensorExpr, lengths: TensorExpr) -> TensorExpr:
        def element(n: Expr, h: Expr, m: Expr, row: Expr, d: Expr) -> Expr:
            return paged_row(cache, table, lengths, (n, h, m * rows + row, d), (m, row))

        return p.compute((batch, heads, most, rows, size), element, name="paged_rows")

    copied = b.call_prim(body, cache, op.table, op.lengths, name="paged_rows")
    return b.emit(Reshape, copied, shape=(batch, heads, most * rows, size))


@legalize("relax.cache_write")
def cache_write(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Legalize to loops that work in place if the memory plan lets cache and result alias."""
    rows = op.shape[2]

    def body(loops: LoopBuilder, cache: Buffer, new: Buffer, positions: Buffer, output: Buffer) -> None:
        loops.start_from(cache, output, axis=2)
        batch, heads, length, size = new.shape
        for n, h in loops.nest((batch, heads), parallel=True):
            for s in loops.range(length):
                row = loops.let(positions[n, s])
                with loops.if_(is_within([row], [rows])):
                    for d in loops.range(size):
                        output[n, h, row, d] = new[n, h, s, d]

    return b.call_loops(body, op.cache, op.new, op.positions)


@legalize("relax.rotary_embedding")
def rotary_embedding(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def body(p: PrimBuilder, x: TensorExpr, cos: TensorExpr, sin: TensorExpr) -> TensorExpr:
        half = cos.shape[-1]

        def element(*axes: Expr) -> Expr:
            *leading, d = axes
            distance: Dim = 1 if op.interleaved else half
            angle, first = (d // 2, (d % 2).equals(0)) if op.interleaved else (d % half, d < half)
            # Beyond the rotated elements the value is unused and only has to be readable.
            before = wide(x.at(*leading, d - distance, outside=0.0))
            after = wide(x.at(*leading, d + distance, outside=0.0))
            at: ExprLike = angle if half != 1 else 0
            c, s = (wide(_angle(t, leading, at, outside=op.interleaved)) for t in (cos, sin))
            own = wide(x.at(*axes))
            rotated = own * c + select(first, -after, before) * s
            value = rotated if 2 * half == x.shape[-1] else select(d < 2 * half, rotated, own)
            return value.cast(x.dtype)

        return p.compute(x.shape, element, name="rotary_embedding")

    return b.call_prim(body, op.x, op.cos, op.sin)


def _angle(table: TensorExpr, leading: list[Expr], at: ExprLike, outside: bool) -> Expr:
    """Return the angle's cosine or sine, for a table that broadcasts to [B, 1, S, R/2]."""
    batch, _, position = leading
    wanted: Sequence[ExprLike] = (batch, 0, position)
    dims = table.shape[:-1]
    indices: list[ExprLike] = [0 if dim == 1 else i for dim, i in zip(dims, wanted[4 - table.rank :], strict=True)]
    return table.at(*indices, at, outside=0.0 if outside else None)
