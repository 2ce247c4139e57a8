"""Default rules of the softmax family: a few passes over rows along any dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import Expr, TensorExpr, constant, exp, log, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, split_axes, wide
from mirlo.passes.legalize.rules.reduce import arg_extreme
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


Element = Callable[[Sequence[Expr]], Expr]
"""Computes an element from its indices."""


class SoftmaxRows:
    """The rows of a tensor along one axis: reductions return one element per row."""

    def __init__(self, p: PrimBuilder, x: TensorExpr, axis: int):
        self.p = p
        self.shape = x.shape
        self.axis = axis
        self.rows = x.shape[:axis] + x.shape[axis + 1 :]
        self.size = x.shape[axis]

    def reduce(self, kind: str, element: Element, name: str) -> TensorExpr:
        """Reduce each row; `element` takes the indices of an element of the tensor."""

        def at(*axes: Expr) -> Expr:
            return element(split_axes(axes, [self.axis], len(self.shape)))

        return self.p.reduce(kind, self.rows, (self.size,), at, name=name)

    def compute(self, element: Element, name: str) -> TensorExpr:
        return self.p.compute(self.shape, lambda *axes: element(list(axes)), name=name)

    def per_row(self, element: Callable[..., Expr], name: str) -> TensorExpr:
        """Compute one element per row from the indices of the row."""
        return self.p.compute(self.rows, element, name=name)

    def of(self, per_row: TensorExpr, at: Sequence[Expr]) -> Expr:
        """Return the element of the row that contains these indices."""
        return per_row.at(*at[: self.axis], *at[self.axis + 1 :])


@legalize("relax.softmax")
def softmax(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    axis = op.axis % len(shape_of(op.x))

    return b.call_prim(lambda p, x: softmax_blocks(p, x, axis, x.dtype), op.x)


def softmax_blocks(
    p: PrimBuilder,
    x: TensorExpr,
    axis: int,
    result: DType,
    guarded: bool = False,
    extra: Callable[..., Expr] | None = None,
) -> TensorExpr:
    """Emit the softmax along an axis. With `guarded`, a row of only -inf results in zeros instead of NaN.

    `extra` returns, for the indices of a row, one more element that is part of the sum only.
    """
    rows = SoftmaxRows(p, x, axis)
    peak = rows.reduce("max", lambda at: wide(x.at(*at)), "softmax_max")
    if guarded:
        peak = rows.per_row(lambda *row: select(peak.at(*row) > float("-inf"), peak.at(*row), 0.0), "softmax_shift")
    raised = rows.compute(lambda at: exp(wide(x.at(*at)) - rows.of(peak, at)), "softmax_exp")
    total = rows.reduce("add", lambda at: raised.at(*at), "softmax_sum")
    if extra is not None:
        own, largest = total, peak
        total = rows.per_row(lambda *row: own.at(*row) + exp(wide(extra(*row)) - largest.at(*row)), "softmax_extra")
    if guarded:
        total = rows.per_row(lambda *row: select(total.at(*row).equals(0.0), 1.0, total.at(*row)), "softmax_total")
    return rows.compute(lambda at: (raised.at(*at) / rows.of(total, at)).cast(result), "softmax")


@legalize("relax.log_softmax")
def log_softmax(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    axis = op.axis % len(shape_of(op.x))

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        rows = SoftmaxRows(p, x, axis)
        peak = rows.reduce("max", lambda at: wide(x.at(*at)), "softmax_max")
        total = rows.reduce("add", lambda at: exp(wide(x.at(*at)) - rows.of(peak, at)), "softmax_sum")
        # One logarithm per row. It is not added to a large maximum, which would cost it its precision.
        shift = rows.per_row(lambda *row: log(total.at(*row)), "softmax_shift")
        return rows.compute(
            lambda at: ((wide(x.at(*at)) - rows.of(peak, at)) - rows.of(shift, at)).cast(x.dtype), "log_softmax"
        )

    return b.call_prim(body, op.x)


@legalize("relax.hardmax")
def hardmax(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    axis = op.axis % len(shape_of(op.x))

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        rows = SoftmaxRows(p, x, axis)
        where = arg_extreme(p, x, axis, rows.rows, lambda row: row, largest=True, last=False)
        one, zero = constant(1, x.dtype), constant(0, x.dtype)
        return rows.compute(lambda at: select(at[axis].equals(rows.of(where, at)), one, zero), "hardmax")

    return b.call_prim(body, op.x)
