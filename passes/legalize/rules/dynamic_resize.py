"""Resampling with sizes, scales or region known at run time only: coordinates are computed per element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, ceildiv, maximum
from mirlo.dialects.tir.compute import BOOL, Expr, TensorExpr, constant, floor, select, within
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.numpy_functions import as_scalar_function
from mirlo.passes.legalize.helpers import shape_of, stored_saturated, sum_of, weighted
from mirlo.passes.legalize.interpolation import (
    RADIUS,
    coordinate,
    coordinate_type,
    factor_of,
    is_normalized,
    nearest,
    tap_options,
    tap_weight,
)
from mirlo.passes.rules import Decline, decline, legalize
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

F64 = "f64"
_coordinate, _nearest, _weight, _factor = (as_scalar_function(f) for f in (coordinate, nearest, tap_weight, factor_of))


@dataclass
class _ResizeAxis:
    """One axis: sizes of the operand and of the result, scale and region."""

    op: ir.OpView
    dims: tuple[Dim, Dim]
    scale: Expr
    begin: Expr
    end: Expr

    @property
    def size(self) -> Expr:
        return constant(self.dims[0], F64)

    @property
    def taps(self) -> Dim:
        """Return the number of elements with a weight; with antialiasing, those of an output element's range."""
        radius, (size, count) = RADIUS[self.op.mode], self.dims
        # A count that is rounded up makes the ratio a little less than the scale.
        return 2 * (radius * ceildiv(size, maximum(count, 1)) + radius) if self.op.antialias else 2 * radius

    def coordinate(self, i: Expr) -> Expr:
        """Return the coordinate of an output element in the operand."""
        dtype, kind = coordinate_type(self.op), self.op.coordinates
        size, count = (constant(dim, dtype) for dim in self.dims)
        numbers = (each.cast(dtype) for each in (_factor(self.scale, self.size, kind=kind), self.begin, self.end))
        return _coordinate(i.cast(dtype), size, count, *numbers, kind=kind)

    def nearest(self, i: Expr) -> Expr:
        return _nearest(self.coordinate(i), rounding=self.op.nearest)

    def tap(self, i: Expr, k: Expr | int) -> tuple[Expr, Expr]:
        """Return the index that a tap reads, and its weight before these are normalized."""
        at, first = self.coordinate(i), self.taps // 2 - 1
        offset = constant(k - first, F64) if isinstance(k, int) else k.cast(F64) - constant(first, F64)
        index = floor(at) + offset
        return index, _weight(at, index, self.size, self.scale, **tap_options(self.op))

    def is_outside(self, i: Expr) -> Expr:
        at = self.coordinate(i)
        return (at < 0.0) | (at > constant(self.dims[0], at.dtype) - 1.0)

    def place(self, index: Expr) -> Expr:
        """Clamp an index to the operand."""
        return within(index, self.dims[0])


@legalize("relax.resize", priority=-20)
def dynamic_resize(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    shape = shape_of(op.x)
    if 0 in shape:
        return decline("an empty tensor has nothing to interpolate", shape=shape)
    return b.call_prim(lambda p, x: _resize(op, p, x, None, None), op.x)


@legalize("relax.resize_at")
def resize_at(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    return b.call_prim(lambda p, x, scales, roi: _resize(op, p, x, scales, roi), op.x, op.scales, op.roi)


def _resize(
    op: ir.OpView, p: PrimBuilder, x: TensorExpr, scales: TensorExpr | None, roi: TensorExpr | None
) -> TensorExpr:
    output = shape_of(op.output)
    axes = _axes(op, x, output, scales, roi)
    interpolated = x
    if op.mode != "nearest":
        for i, axis in axes.items():
            interpolated = _interpolated(p, interpolated, i, axis, output[i])

    def element(*at: Expr) -> Expr:
        indices = list(at)
        if op.mode == "nearest":
            for i, axis in axes.items():
                indices[i] = axis.place(axis.nearest(at[i]))
        value = interpolated.at(*indices)
        if op.coordinates == "tf_crop_and_resize":
            out = constant(False, BOOL)
            for i, axis in axes.items():
                out = out | axis.is_outside(at[i])
            value = select(out, constant(op.extrapolation, value.dtype), value)
        return stored_saturated(value, x.dtype) if op.mode == "cubic" else value.cast(x.dtype)

    resized: TensorExpr = p.compute(output, element, name="resize")
    return resized


def _axes(
    op: ir.OpView, x: TensorExpr, output: tuple[Dim, ...], scales: TensorExpr | None, roi: TensorExpr | None
) -> dict[int, _ResizeAxis]:
    """Return the axes whose size may change."""
    rank = x.rank

    def scale_of(i: int) -> Expr:
        if scales is not None:
            return scales.at(i).cast(F64)
        if op.scales:
            return constant(op.scales[i], F64)
        return constant(output[i], F64) / constant(x.shape[i], F64)

    def region(i: int, default: float) -> Expr:
        if roi is not None:
            return roi.at(i).cast(F64)
        return constant(op.roi[i] if scales is None and op.roi else default, F64)

    is_crop = scales is None and bool(op.roi)
    changed = [
        i for i in range(rank)
        if scales is not None or is_crop or x.shape[i] != output[i] or (op.scales and op.scales[i] != 1.0)
    ]  # fmt: skip
    return {
        i: _ResizeAxis(op, (x.shape[i], output[i]), scale_of(i), region(i, 0.0), region(rank + i, 1.0)) for i in changed
    }


def _interpolated(p: PrimBuilder, x: TensorExpr, i: int, axis: _ResizeAxis, count: Dim) -> TensorExpr:
    """Return x with one axis resized."""
    shape = (*x.shape[:i], count, *x.shape[i + 1 :])

    def term(at: Sequence[Expr], index: Expr, weight: Expr) -> Expr:
        return weighted(x.at(*at[:i], axis.place(index), *at[i + 1 :]), weight)

    if not axis.op.antialias:
        # Each position has its taps once, not once for each element that is computed there.
        few = 2 * RADIUS[axis.op.mode]
        places = p.compute((count, few), lambda j, k: axis.place(axis.tap(j, k)[0]), name="places")
        shares = p.compute((count, few), lambda j, k: _share(axis, j, k), name="shares")

        def few_terms(*at: Expr) -> Expr:
            taps = [(places.at(at[i], k), shares.at(at[i], k)) for k in range(few)]
            return sum_of([term(at, *tap) for tap in taps])

        return p.compute(shape, few_terms, name="interpolate")
    rank, taps = x.rank, axis.taps
    weights = p.compute((count, taps), lambda j, k: axis.tap(j, k)[1], name="weights")
    totals = p.reduce("add", (count,), (taps,), lambda j, k: weights.at(j, k), name="total")
    return p.reduce(
        "add", shape, (taps,),
        lambda *at: term(at[:rank], axis.tap(at[i], at[rank])[0], weights.at(at[i], at[rank]) / totals.at(at[i])),
        name="interpolate",
    )  # fmt: skip


def _share(axis: _ResizeAxis, i: Expr, k: Expr) -> Expr:
    """Return the weight of a tap, by the sum of the weights where they are normalized."""
    weight = axis.tap(i, k)[1]
    if not is_normalized(axis.op):
        return weight
    return weight / sum_of([axis.tap(i, tap)[1] for tap in range(2 * RADIUS[axis.op.mode])])
