"""Resampling with sizes, scales or region known at run time only: coordinates are computed per element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import BOOL, INDEX, Expr, TensorExpr, abs_, ceil, clamp, constant, floor, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, wide
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

F64 = "f64"


@dataclass
class _ResizeAxis:
    """One axis: sizes of the operand and of the result, scale and region."""

    op: Any
    size: Expr
    count: Expr
    scale: Expr
    begin: Expr
    end: Expr

    def coordinate(self, i: Expr) -> Expr:
        """Return the coordinate of an output element in the operand."""
        at, kind, size, count = i.cast(F64), self.op.coordinates, self.size, self.count
        last, is_one = size - 1.0, count.equals(1.0)
        # As in ONNX's reference, the end follows from the scale, not from the last whole element.
        steps = select(is_one, constant(1.0, F64), self.scale * size - 1.0)
        if kind == "asymmetric":
            return at / self.scale
        if kind == "tf_half_pixel_for_nn":
            return (at + 0.5) / self.scale
        if kind == "align_corners":
            return select(is_one, constant(0.0, F64), at * last / steps)
        if kind == "tf_crop_and_resize":
            inside = self.begin * last + at * (self.end - self.begin) * last / steps
            return select(is_one, (self.begin + self.end) * 0.5 * last, inside)
        half = (at + 0.5) / self.scale - 0.5
        if kind == "pytorch_half_pixel":
            return select(is_one, constant(0.0, F64), half)
        if kind == "half_pixel_symmetric":
            return size * 0.5 * (1.0 - count / (self.scale * size)) + half
        return half

    def nearest(self, i: Expr) -> Expr:
        at, mode = self.coordinate(i), self.op.nearest
        if mode == "round_prefer_floor":
            return ceil(at - 0.5)
        if mode == "round_prefer_ceil":
            return floor(at + 0.5)
        return floor(at) if mode == "floor" else ceil(at)

    def taps(self, i: Expr) -> list[tuple[Expr, Expr]]:
        """Return the indices that are read, and their weights."""
        at = self.coordinate(i)
        low = floor(at)
        offsets = range(-1, 3) if self.op.mode == "cubic" else range(2)
        found = []
        for offset in offsets:
            index = low + float(offset)
            distance = abs_(at - index)
            weight = _keys(distance, self.op.cubic_coeff) if self.op.mode == "cubic" else 1.0 - distance
            if self.op.exclude_outside:
                weight = select((index < 0.0) | (index >= self.size), constant(0.0, F64), weight)
            found.append((index, weight))
        if self.op.exclude_outside:
            total = found[0][1]
            for _, weight in found[1:]:
                total = total + weight
            found = [(index, weight / total) for index, weight in found]
        return found

    def is_outside(self, i: Expr) -> Expr:
        at = self.coordinate(i)
        return (at < 0.0) | (at > self.size - 1.0)

    def place(self, index: Expr) -> Expr:
        """Clamp an index to the operand."""
        return clamp(index, 0.0, self.size - 1.0).cast(INDEX)


def _keys(d: Expr, a: float) -> Expr:
    """Evaluate Keys' cubic kernel."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1.0
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return select(d <= 1.0, near, select(d < 2.0, far, constant(0.0, F64)))


@legalize("relax.resize", priority=-20)
def resize_open(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
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
    made = x
    if op.mode != "nearest":
        for i, axis in axes.items():
            made = _interpolated(p, made, i, axis, output[i])

    def element(*at: Expr) -> Expr:
        places: list[Any] = list(at)
        if op.mode == "nearest":
            for i, axis in axes.items():
                places[i] = axis.place(axis.nearest(at[i]))
        value = made.at(*places)
        if op.coordinates == "tf_crop_and_resize":
            out = constant(False, BOOL)
            for i, axis in axes.items():
                out = out | axis.is_outside(at[i])
            value = select(out, constant(op.extrapolation, value.dtype), value)
        return value.cast(x.dtype)

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
        i: _ResizeAxis(
            op, constant(x.shape[i], F64), constant(output[i], F64), scale_of(i), region(i, 0.0), region(rank + i, 1.0)
        )
        for i in changed
    }


def _interpolated(p: PrimBuilder, x: TensorExpr, i: int, axis: _ResizeAxis, count: Any) -> TensorExpr:
    """Return x with one axis resized."""

    def element(*at: Expr) -> Expr:
        total: Any = None
        for index, weight in axis.taps(at[i]):
            places: list[Any] = list(at)
            places[i] = axis.place(index)
            value = x.at(*places)
            value = wide(value) if value.dtype.is_float else value.cast("f32")
            term = value * weight.cast(value.dtype)
            total = term if total is None else total + term
        return total

    made: TensorExpr = p.compute((*x.shape[:i], count, *x.shape[i + 1 :]), element, name="interpolate")
    return made
