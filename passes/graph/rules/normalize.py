"""Recognition of normalizations that are decomposed into means, squares and roots."""

from __future__ import annotations

from typing import NamedTuple

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import class_of
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use, without_unit_dims
from mirlo.passes.rules import Decline, decline, recognize


class _Deviation(NamedTuple):
    """sqrt(mean of the squares of a value over trailing axes + epsilon)."""

    value: ir.Value
    axis: int
    epsilon: float
    is_centered: bool = False
    """Whether the mean of the value is subtracted first, as mean(x^2) - mean(x)^2 does."""


@recognize("relax.divide", "relax.multiply")
def normalization(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace (x - mean(x)) / sqrt(variance + epsilon) by layer norm; x / sqrt(mean(x^2) + epsilon) by RMS norm."""
    is_quotient = op.operation.name == "relax.divide"
    for x, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        for part, scale in [(other, None)] if is_quotient else [(other, None), *_factors(other)]:
            divisor = _divisor(part, b) if is_quotient else _reciprocal(part, b)
            if divisor is None or x.type != op.output.type or not _is_kept(part, x, divisor.axis):
                continue
            result = _norm(x, divisor, b)
            if result is not None:
                return result if scale is None else b.emit(OPS["multiply"], result, scale)
        if is_quotient:
            break
    return decline("it does not divide by the deviation of a row")


def _factors(value: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
    """Return the ways to split a product in two: x * (reciprocal * scale) is also (x * reciprocal) * scale."""
    product = defining(value, "relax.multiply")
    if product is None or not only_use(value):
        return []
    return [(product.lhs, product.rhs), (product.rhs, product.lhs)]


def _norm(x: ir.Value, deviation: _Deviation, b: Rewriter) -> ir.Value | None:
    """Return x over the deviation as a norm, if the deviation is that of x."""
    attributes = {"axis": deviation.axis, "epsilon": deviation.epsilon}
    centered = defining(x, "relax.subtract")
    is_centered = centered is not None and _mean_axis(centered.rhs, centered.lhs) == deviation.axis
    if deviation.is_centered:
        if centered is None or not is_centered or centered.lhs != deviation.value:
            return None
        return b.emit(OPS["layer_norm"], centered.lhs, **attributes)
    if not _same(deviation.value, x):
        return None
    if centered is not None and is_centered:
        return b.emit(OPS["layer_norm"], centered.lhs, **attributes)
    return b.emit(OPS["rms_norm"], x, **attributes)


@recognize("relax.multiply", producers=["relax.layer_norm", "relax.rms_norm"])
def scale_of_norm(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Merge a scale per element of the normalized rows into the norm."""
    for x, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        norm = defining(x, "relax.layer_norm") or defining(x, "relax.rms_norm")
        if norm is None or norm.scale is not None or getattr(norm, "bias", None) is not None:
            continue
        scale = _of_row(factor, norm, x, op, b)
        if scale is not None:
            return b.emit(class_of(norm), norm.x, scale, **norm.attribute_values())
    return decline("no operand is a norm without a scale")


@recognize("relax.add", producers=["relax.layer_norm"])
def bias_of_norm(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
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
    """Return a value without leading dims if it is equal for all rows: it has the dims of a row, or fewer."""
    if not only_use(x) or not beside(x, b) or x.type != op.output.type:
        return None
    rank, shape = kind_of(x).rank, kind_of(value).shape
    dims = rank - norm.axis % rank
    if any(dim != 1 for dim in shape[: max(0, len(shape) - dims)]):
        return None
    return value if len(shape) <= dims else b.emit(OPS["reshape"], value, shape=shape[len(shape) - dims :])


def _reciprocal(value: ir.Value, b: Rewriter) -> _Deviation | None:
    """Return the deviation of which a value is the reciprocal."""
    value = without_unit_dims(value)
    root = defining(value, "relax.rsqrt")
    if root is not None:
        return _variance(root.x, b)
    inverse = defining(value, "relax.reciprocal")
    if inverse is not None:
        return _divisor(inverse.x, b)
    quotient = defining(value, "relax.divide")
    return _divisor(quotient.rhs, b) if quotient is not None and b.splat(quotient.lhs) == 1 else None


def _divisor(value: ir.Value, b: Rewriter) -> _Deviation | None:
    root = defining(without_unit_dims(value), "relax.sqrt")
    return None if root is None else _variance(root.x, b)


def _variance(value: ir.Value, b: Rewriter) -> _Deviation | None:
    """Match mean(square) + epsilon, in either order."""
    total = defining(without_unit_dims(value), "relax.add")
    if total is None or not beside(total.output, b):
        return None
    for mean, number in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        epsilon = b.splat(number)
        if epsilon is None:
            continue
        square = _mean_of_square(mean, b)
        if square is not None:
            return _Deviation(*square, epsilon)
        square = _difference_of_squares(mean, b)
        if square is not None:
            return _Deviation(*square, epsilon, is_centered=True)
    return None


def _mean_of_square(value: ir.Value, b: Rewriter) -> tuple[ir.Value, int] | None:
    """Match mean(x^2) over trailing axes: x and the first axis."""
    reduced = defining(without_unit_dims(value), "relax.reduce_mean")
    squared = None if reduced is None else _squared(reduced.x, b)
    axis = None if reduced is None else _trailing(reduced)
    return None if squared is None or axis is None else (squared, axis)


def _difference_of_squares(value: ir.Value, b: Rewriter) -> tuple[ir.Value, int] | None:
    """Match mean(x^2) - mean(x)^2, which JAX keeps from being negative: x and the first axis."""
    value = without_unit_dims(value)
    for kept in _factors_of_maximum(value, b):
        value = without_unit_dims(kept)
    difference = defining(value, "relax.subtract")
    if difference is None:
        return None
    result = _mean_of_square(difference.lhs, b)
    squared = _squared(without_unit_dims(difference.rhs), b)
    mean = None if squared is None else defining(without_unit_dims(squared), "relax.reduce_mean")
    if result is None or mean is None or mean.x != result[0] or _trailing(mean) != result[1]:
        return None
    return result


def _factors_of_maximum(value: ir.Value, b: Rewriter) -> list[ir.Value]:
    """Return the operand of a maximum with 0."""
    bounded = defining(value, "relax.maximum") or defining(value, "relax.relu")
    if bounded is None:
        return []
    if bounded.operation.name == "relax.relu":
        return [bounded.x]
    sides = ((bounded.lhs, bounded.rhs), (bounded.rhs, bounded.lhs))
    return [x for x, number in sides if b.splat(number) == 0][:1]


def _squared(value: ir.Value, b: Rewriter) -> ir.Value | None:
    """Return the value of which this is the square."""
    power = defining(value, "relax.power")
    if power is not None and b.splat(power.rhs) == 2 and power.lhs.type == power.output.type:
        result: ir.Value = power.lhs
        return result
    square = defining(value, "relax.square")
    if square is not None:
        squared: ir.Value = square.x
        return squared
    product = defining(value, "relax.multiply")
    return product.lhs if product is not None and _same(product.lhs, product.rhs) else None


def _mean_axis(value: ir.Value, x: ir.Value) -> int | None:
    """Return the first of the trailing axes of x over which the value is the mean, with the axes kept."""
    mean = defining(without_unit_dims(value), "relax.reduce_mean")
    if mean is None or not _same(mean.x, x):
        return None
    axis = _trailing(mean)
    return axis if axis is not None and _is_kept(value, x, axis) else None


def _trailing(reduction: ir.OpView) -> int | None:
    """Return the first axis of a reduction over trailing axes."""
    rank = kind_of(reduction.x).rank
    axes = sorted(axis % rank for axis in (reduction.axes if reduction.axes is not None else range(rank)))
    return axes[0] if axes and axes == list(range(axes[0], rank)) else None


def _is_kept(value: ir.Value, x: ir.Value, axis: int) -> bool:
    """Return whether a value has the shape of x, with the axes from `axis` on as dims of 1."""
    shape = kind_of(x).shape
    return kind_of(value).shape == (*shape[:axis], *[1] * (len(shape) - axis))


def _same(a: ir.Value, b: ir.Value) -> bool:
    """Return whether two values are identical, or the same difference computed twice."""
    if a == b:
        return True
    left, right = defining(a, "relax.subtract"), defining(b, "relax.subtract")
    return left is not None and right is not None and left.lhs == right.lhs and _same_mean(left.rhs, right.rhs)


def _same_mean(a: ir.Value, b: ir.Value) -> bool:
    left, right = defining(a, "relax.reduce_mean"), defining(b, "relax.reduce_mean")
    if a == b or left is None or right is None:
        return bool(a == b)
    return bool(left.x == right.x and left.attribute_values() == right.attribute_values())
