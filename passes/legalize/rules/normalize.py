"""Default rules of normalizations: stable two-pass statistics, in f32 for low precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import Expr, TensorExpr, abs_, call, select, sqrt
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import aligned, shape_of, wide
from mirlo.passes.legalize.rules.softmax import SoftmaxRows
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

Read = Callable[[Sequence[Expr]], Expr]
"""Returns an element of a statistic's row: takes the axes of the row, then the reduction axes."""


def moments(
    p: PrimBuilder, rows: Sequence[Dim], extents: Sequence[Dim], read: Read, epsilon: float
) -> tuple[TensorExpr, TensorExpr]:
    """Return mean and 1 / sqrt(variance + epsilon) of each row."""
    count = D.product(list(extents))
    rank = len(rows)
    total = p.reduce("add", rows, extents, lambda *axes: read(axes), name="sum")
    mean = p.compute(rows, lambda *row: total.at(*row) / count, name="mean")

    def squared(*axes: Expr) -> Expr:
        centered = read(axes) - mean.at(*axes[:rank])
        return centered * centered

    squares = p.reduce("add", rows, extents, squared, name="squares")
    deviation = p.compute(rows, lambda *row: 1.0 / sqrt(squares.at(*row) / count + epsilon), name="inverse_deviation")
    return mean, deviation


@legalize("relax.layer_norm")
def layer_norm(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    first = op.axis % len(shape_of(op.x))

    def body(p: PrimBuilder, x: TensorExpr, scale: TensorExpr | None, bias: TensorExpr | None) -> TensorExpr:
        rows, extents = x.shape[:first], x.shape[first:]
        mean, deviation = moments(p, rows, extents, lambda axes: wide(x.at(*axes)), op.epsilon)

        def element(*axes: Expr) -> Expr:
            value = (wide(x.at(*axes)) - mean.at(*axes[:first])) * deviation.at(*axes[:first])
            return _affine(value, scale, bias, axes).cast(x.dtype)

        return p.compute(x.shape, element, name="layer_norm")

    return b.call_prim(body, op.x, op.scale, op.bias)


def _affine(value: Expr, scale: TensorExpr | None, bias: TensorExpr | None, axes: Sequence[Expr]) -> Expr:
    if scale is not None:
        value = value * wide(aligned(scale, axes))
    return value if bias is None else value + wide(aligned(bias, axes))


@legalize("relax.rms_norm")
def rms_norm(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    first = op.axis % len(shape_of(op.x))

    def body(p: PrimBuilder, x: TensorExpr, scale: TensorExpr | None) -> TensorExpr:
        rows, extents = x.shape[:first], x.shape[first:]
        squares = p.reduce("add", rows, extents, lambda *axes: wide(x.at(*axes)) * wide(x.at(*axes)), name="squares")
        count = D.product(extents)
        inverse = p.compute(
            rows, lambda *row: 1.0 / sqrt(squares.at(*row) / count + op.epsilon), name="inverse_root_mean"
        )

        def element(*axes: Expr) -> Expr:
            return _affine(wide(x.at(*axes)) * inverse.at(*axes[:first]), scale, None, axes).cast(x.dtype)

        return p.compute(x.shape, element, name="rms_norm")

    return b.call_prim(body, op.x, op.scale)


@legalize("relax.batch_norm")
def batch_norm(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    channel = op.axis % len(shape_of(op.x))

    def body(
        p: PrimBuilder, x: TensorExpr, scale: TensorExpr, bias: TensorExpr, mean: TensorExpr, variance: TensorExpr
    ) -> TensorExpr:
        factor = p.compute(scale.shape, lambda c: wide(scale[c]) / sqrt(wide(variance[c]) + op.epsilon), name="factor")

        def element(*axes: Expr) -> Expr:
            c = axes[channel]
            return ((wide(x.at(*axes)) - wide(mean[c])) * factor[c] + wide(bias[c])).cast(x.dtype)

        return p.compute(x.shape, element, name="batch_norm")

    return b.call_prim(body, op.x, op.scale, op.bias, op.mean, op.variance)


@legalize("relax.instance_norm")
def instance_norm(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    return _grouped(op, b, shape_of(op.x)[1], "instance_norm")


@legalize("relax.group_norm")
def group_norm(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    return _grouped(op, b, op.groups, "group_norm")


def _grouped(op: ir.OpView, b: LegalizeBuilder, groups: Dim, name: str) -> ir.Value:
    """Emit a normalization with statistics over the spatial dims and the channels of each group."""

    def body(p: PrimBuilder, x: TensorExpr, scale: TensorExpr, bias: TensorExpr) -> TensorExpr:
        batch, channels, *spatial = x.shape
        size = channels // groups if groups != 0 else 1  # no channels: instance_norm has a group for each
        several = size != 1
        extents = (*([size] if several else []), *spatial)

        def read(axes: Sequence[Expr]) -> Expr:
            n, g, *rest = axes
            c = g * size + rest.pop(0) if several else g
            return wide(x.at(n, c, *rest))

        mean, deviation = moments(p, (batch, groups), extents, read, op.epsilon)

        def element(n: Expr, c: Expr, *at: Expr) -> Expr:
            group = c // size if several else c
            value = (wide(x.at(n, c, *at)) - mean[n, group]) * deviation[n, group]
            return (value * wide(scale[c]) + wide(bias[c])).cast(x.dtype)

        return p.compute(x.shape, element, name=name)

    return b.call_prim(body, op.x, op.scale, op.bias)


@legalize("relax.lrn")
def lrn(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def squared(n: Expr, c: Expr, *rest: Expr) -> Expr:
            *at, k = rest
            value = wide(x.at(n, c + k - (op.size - 1) // 2, *at, outside=0.0))
            return value * value

        squares = p.reduce("add", x.shape, (op.size,), squared, name="squares")

        def element(*axes: Expr) -> Expr:
            base = squares.at(*axes) * (op.alpha / op.size) + op.bias
            return (wide(x.at(*axes)) / call("pow", base, op.beta)).cast(x.dtype)

        return p.compute(x.shape, element, name="lrn")

    return b.call_prim(body, op.x)


@legalize("relax.lp_normalize")
def lp_normalize(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    axis = op.axis % len(shape_of(op.x))

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        rows = SoftmaxRows(p, x, axis)

        def power(at: Sequence[Expr]) -> Expr:
            value = wide(x.at(*at))
            return abs_(value) if op.p == 1 else value * value

        total = rows.reduce("add", power, "powers")

        def element(at: Sequence[Expr]) -> Expr:
            size = rows.of(total, at)
            norm = size if op.p == 1 else sqrt(size)
            # A row of zeros stays zero.
            return (wide(x.at(*at)) / select(norm.equals(0.0), 1.0, norm)).cast(x.dtype)

        return rows.compute(element, "lp_normalize")

    return b.call_prim(body, op.x)
