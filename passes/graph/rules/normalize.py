"""Recognition of normalizations that are decomposed into means, squares and roots."""

from __future__ import annotations

from typing import Any, NamedTuple

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use
from mirlo.passes.rules import Decline, decline, recognize


class _Deviation(NamedTuple):
    """sqrt(mean of the squares of a value over trailing axes + epsilon)."""

    value: Any
    axis: int
    epsilon: float


@recognize("relax.divide", "relax.multiply")
def normalization(op: ir.OpView, b: Rewriter) -> Any:
    """Replace (x - mean(x)) / sqrt(variance + epsilon) by layer norm; x / sqrt(mean(x^2) + epsilon) by RMS norm."""
    for x, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        found = _divisor(other, b) if op.operation.name == "relax.divide" else _reciprocal(other, b)
        if found is not None and _same(found.value, x) and x.type == op.output.type:
            centered = defining(x, "relax.subtract")
            attributes = {"axis": found.axis, "epsilon": found.epsilon}
            if centered is not None and _mean_axis(centered.rhs, centered.lhs) == found.axis:
                return b.emit(OPS["layer_norm"], centered.lhs, **attributes)
            return b.emit(OPS["rms_norm"], x, **attributes)
        if op.operation.name == "relax.divide":
            break
    return decline("it does not divide by the deviation of a row")


@recognize("relax.multiply")
def scale_of_norm(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Merge a scale per element of the normalized rows into the norm."""
    for x, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        norm = defining(x, "relax.layer_norm") or defining(x, "relax.rms_norm")
        if norm is None or norm.scale is not None or getattr(norm, "bias", None) is not None:
            continue
        scale = _of_row(factor, norm, x, op, b)
        if scale is not None:
            return b.emit(type(norm), norm.x, scale, **norm.attribute_values())
    return decline("no operand is a norm without a scale")


@recognize("relax.add")
def bias_of_norm(op: ir.OpView, b: Rewriter) -> Any:
    """Merge a bias per element of the normalized rows into the norm."""
    for x, addend in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        norm = defining(x, "relax.layer_norm")
        if norm is None or norm.bias is not None:
            continue
        bias = _of_row(addend, norm, x, op, b)
        if bias is not None:
            return b.emit(OPS["layer_norm"], norm.x, norm.scale, bias, **norm.attribute_values())
    return decline("no operand is a layer norm without a bias")


def _of_row(value: ir.Value, norm: ir.OpView, x: ir.Value, op: ir.OpView, b: Rewriter) -> ir.Value | None:
    """Return a value that is equal for all rows without leading dims: it has the dims of a row, or fewer."""
    if not only_use(x) or not beside(x, b) or x.type != op.output.type:
        return None
    rank, shape = kind_of(x).rank, kind_of(value).shape
    dims = rank - norm.axis % rank
    if any(dim != 1 for dim in shape[: max(0, len(shape) - dims)]):
        return None
    return value if len(shape) <= dims else b.emit(OPS["reshape"], value, shape=shape[len(shape) - dims :])


def _reciprocal(value: ir.Value, b: Rewriter) -> _Deviation | None:
    """Return the deviation of which a value is the reciprocal."""
    root = defining(value, "relax.rsqrt")
    if root is not None:
        return _variance(root.x, b)
    inverse = defining(value, "relax.reciprocal")
    if inverse is not None:
        return _divisor(inverse.x, b)
    quotient = defining(value, "relax.divide")
    return _divisor(quotient.rhs, b) if quotient is not None and b.splat(quotient.lhs) == 1 else None


def _divisor(value: ir.Value, b: Rewriter) -> _Deviation | None:
    root = defining(value, "relax.sqrt")
    return None if root is None else _variance(root.x, b)


def _variance(value: ir.Value, b: Rewriter) -> _Deviation | None:
    """Match mean(square) + epsilon, in either order."""
    total = defining(value, "relax.add")
    if total is None or not beside(value, b):
        return None
    for mean, number in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        epsilon, reduced = b.splat(number), defining(mean, "relax.reduce_mean")
        if epsilon is None or reduced is None:
            continue
        squared = _squared(reduced.x, b)
        axis = None if squared is None else _mean_axis(mean, reduced.x)
        if axis is not None:
            return _Deviation(squared, axis, epsilon)
    return None


def _squared(value: ir.Value, b: Rewriter) -> ir.Value | None:
    """Return the value of which this is the square."""
    power = defining(value, "relax.power")
    if power is not None and b.splat(power.rhs) == 2 and power.lhs.type == power.output.type:
        return power.lhs
    square = defining(value, "relax.square")
    if square is not None:
        return square.x
    product = defining(value, "relax.multiply")
    return product.lhs if product is not None and _same(product.lhs, product.rhs) else None


def _mean_axis(value: ir.Value, x: ir.Value) -> int | None:
    """Return the first of the trailing axes of x over which the value is the mean, with the axes kept."""
    mean = defining(value, "relax.reduce_mean")
    if mean is None or not mean.keepdims or not _same(mean.x, x):
        return None
    rank = kind_of(x).rank
    axes = sorted(axis % rank for axis in (mean.axes if mean.axes is not None else range(rank)))
    return axes[0] if axes and axes == list(range(axes[0], rank)) else None


def _same(a: ir.Value, b: ir.Value) -> bool:
    """Return whether two values are identical, or the same difference computed twice."""
    if a == b:
        return True
    left, right = defining(a, "relax.subtract"), defining(b, "relax.subtract")
    return left is not None and right is not None and left.lhs == right.lhs and _same_mean(left.rhs, right.rhs)


def _same_mean(a: Any, b: Any) -> bool:
    left, right = defining(a, "relax.reduce_mean"), defining(b, "relax.reduce_mean")
    if a == b or left is None or right is None:
        return bool(a == b)
    return bool(left.x == right.x and left.attribute_values() == right.attribute_values())
