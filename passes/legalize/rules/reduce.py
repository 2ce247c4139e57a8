"""Default rules of reductions and arg reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax.infer import normalize_axes
from mirlo.dialects.tir.compute import Expr, TensorExpr, call, constant, exp, log, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, short_name, split_axes, wide
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

OF_BOOL = {"max": "or", "min": "and"}


@legalize(Trait.REDUCTION)
def reduction(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    row = op.COMBINE
    if row is None:
        return decline("it declares no COMBINE")

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        over = ReductionIndices(x, op.axes, op.keepdims)
        kind = OF_BOOL.get(row.kind, row.kind) if x.dtype.is_bool else row.kind
        result = p.reduce(kind, over.shape, over.extents, lambda *axes: row.before(wide(x.at(*over.source(axes)))))
        if row.finish is None and result.dtype is x.dtype:
            return result
        finish = row.finish or (lambda value, count: value)
        return p.compute(
            over.shape, lambda *axes: finish(result.at(*axes), over.count).cast(x.dtype), name=short_name(op)
        )

    return b.call_prim(body, op.x)


@legalize("relax.reduce_log_sum_exp")
def log_sum_exp(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        over = ReductionIndices(x, op.axes, op.keepdims)
        peak = p.reduce("max", over.shape, over.extents, lambda *axes: wide(x.at(*over.source(axes))))
        # An infinite maximum would result in `inf - inf`.
        shift = p.compute(
            over.shape,
            lambda *axes: select(call("isfinite", peak.at(*axes)), peak.at(*axes), constant(0, peak.dtype)),
            name="shift",
        )
        total = p.reduce(
            "add",
            over.shape,
            over.extents,
            lambda *axes: exp(wide(x.at(*over.source(axes))) - shift.at(*axes[: len(over.shape)])),
        )
        return p.compute(
            over.shape, lambda *axes: (log(total.at(*axes)) + shift.at(*axes)).cast(x.dtype), name=short_name(op)
        )

    return b.call_prim(body, op.x)


class ReductionIndices:
    """Maps the axes of a reduction's block to indices of the operand."""

    def __init__(self, x: TensorExpr, axes: Sequence[int] | None, keepdims: bool):
        self.axes = normalize_axes(axes, x.rank)
        self.rank = x.rank
        self.keepdims = keepdims
        self.extents = tuple(x.shape[i] for i in self.axes)
        self.shape = tuple(
            1 if i in self.axes else dim for i, dim in enumerate(x.shape) if keepdims or i not in self.axes
        )
        self.count: Dim = 1
        for extent in self.extents:
            self.count *= extent

    def source(self, axes: Sequence[Expr]) -> list[Expr]:
        spatial, reduced = axes[: len(self.shape)], axes[len(self.shape) :]
        if self.keepdims:
            spatial = [axis for i, axis in enumerate(spatial) if i not in self.axes]
        return split_axes([*spatial, *reduced], self.axes, self.rank)


@legalize("relax.argmax", "relax.argmin")
def argument(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    largest = short_name(op) == "argmax"
    axis = op.axis % len(shape_of(op.x))

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        over = ReductionIndices(x, (axis,), op.keepdims)

        def row(axes: Sequence[Expr]) -> Sequence[Expr]:
            return [a for i, a in enumerate(axes) if not (op.keepdims and i == axis)]

        return arg_extreme(p, x, axis, over.shape, row, largest, op.select_last)

    return b.call_prim(body, op.x)


def arg_extreme(
    p: PrimBuilder,
    x: TensorExpr,
    axis: int,
    shape: Sequence[Dim],
    row: Callable[[Sequence[Expr]], Sequence[Expr]],
    largest: bool,
    last: bool,
) -> TensorExpr:
    """Return the position of the extreme of each row along the axis as i64. NaN is the most extreme.

    `row` picks the indices of the other dims from the axes of the result. Two reductions find the extreme, then its
    first (or last) position: both reduce plain scalars, which schedules vectorize.
    """
    rank = len(shape)
    name = "argmax" if largest else "argmin"

    def at(axes: Sequence[Expr]) -> Expr:
        return x.at(*split_axes([*row(axes[:rank]), axes[-1]], [axis], x.rank))

    extreme = p.reduce(
        "max" if largest else "min", shape, (x.shape[axis],), lambda *axes: at(axes), name=f"{name}_value"
    )
    size = x.shape[axis]
    index = "i32" if isinstance(size, int) and size < 1 << 31 else "i64"
    nowhere = constant(-1 if last else size, index)

    def candidate(*axes: Expr) -> Expr:
        value = at(axes)
        is_extreme = value.equals(extreme.at(*axes[:rank]))
        if value.dtype.is_float:
            is_extreme = is_extreme | value.differs(value)
        return select(is_extreme, axes[-1].cast(index), nowhere)

    position = p.reduce("max" if last else "min", shape, (x.shape[axis],), candidate, name=name)
    return p.compute(shape, lambda *axes: position.at(*axes).cast("i64"), name="place")


def more_extreme(a: Expr, b: Expr, largest: bool) -> Expr:
    """Return whether `a` is strictly more extreme; NaN is the most extreme of all."""
    more = a > b if largest else a < b
    return more | (a.differs(a) & b.equals(b)) if a.dtype.is_float else more
