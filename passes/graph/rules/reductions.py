"""Reductions in their canonical form, and softmax from its parts."""

from __future__ import annotations

import math

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import class_of
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use, without_unit_dims
from mirlo.passes.rules import Decline, decline, recognize, simplify


@recognize("relax.divide", "relax.multiply", producers=["relax.reduce_sum"])
def mean_of_sum(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace a sum over its number of elements by a mean."""
    is_quotient = op.operation.name == "relax.divide"
    for x, number in [(op.lhs, op.rhs)] if is_quotient else [(op.lhs, op.rhs), (op.rhs, op.lhs)]:
        total, factor = defining(x, "relax.reduce_sum"), b.splat(number)
        if total is None or not factor or not kind_of(x).dtype.is_float or x.type != op.output.type:
            continue
        if not only_use(x):
            return decline("the sum is read elsewhere, too")
        shape = kind_of(total.x).shape
        axes = total.axes if total.axes is not None else range(len(shape))
        sizes = [size for size in (shape[axis] for axis in axes) if isinstance(size, int)]
        if len(sizes) != len(list(axes)):
            return decline("the number of elements is not known")
        count = math.prod(sizes)
        # A product is the mean only where the reciprocal is exact.
        if factor == count if is_quotient else factor * count == 1 and math.frexp(factor)[0] == 0.5:
            return b.emit(OPS["reduce_mean"], total.x, **total.attribute_values())
    return decline("it is not a sum divided by its number of elements")


@recognize("relax.maximum", "relax.minimum", producers=["relax.constant"])
def bound_without_effect(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Remove a bound that nothing exceeds: max(x, -inf), min(x, inf)."""
    bound = -math.inf if op.operation.name == "relax.maximum" else math.inf
    for x, number in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if x.type == op.output.type and b.splat(number) == bound:
            result: ir.Value = x
            return result
    return decline("no operand is an infinite bound")


@simplify("relax.reshape")
def kept_dims(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Keep the axes of a reduction as dims of 1 in place of a reshape that inserts them."""
    inner = op.x.owner.opview if isinstance(op.x, ir.OpResult) else None
    if inner is None or not hasattr(type(inner), "axes") or not hasattr(type(inner), "keepdims") or inner.keepdims:
        return decline("the operand is not a reduction without the reduced axes")
    if not only_use(op.x):
        return decline("the reduced value is used without these dims, too")
    if kind_of(op.output).shape != _kept_shape(inner):
        return decline("the reshape does not insert the reduced axes")
    return b.emit(class_of(inner), inner.x, **{**inner.attribute_values(), "keepdims": True})


def _kept_shape(reduction: ir.OpView) -> tuple[Dim, ...]:
    shape = kind_of(reduction.x).shape
    axes = reduction.axes if reduction.axes is not None else range(len(shape))
    reduced = {axis % len(shape) for axis in axes}
    return tuple(1 if axis in reduced else dim for axis, dim in enumerate(shape))


@recognize("relax.divide", producers=["relax.exp"])
def softmax(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Replace exp(x - max(x)) / sum(exp(x - max(x))) by softmax."""
    power = defining(op.lhs, "relax.exp")
    shifted = None if power is None else defining(power.x, "relax.subtract")
    if power is None or shifted is None or not beside(op.lhs, b):
        return decline("the dividend is not an exponential of a difference")
    axis = _kept_axis(shifted.rhs, "reduce_max", shifted.lhs)
    if axis is None or _kept_axis(op.rhs, "reduce_sum", op.lhs) != axis:
        return decline("it is not divided by the sum over the axis whose maximum is subtracted")
    return b.emit(OPS["softmax"], shifted.lhs, axis=axis)


@recognize("relax.subtract", producers=["relax.log"])
def log_softmax(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Replace (x - max(x)) - log(sum(exp(x - max(x)))) by log-softmax."""
    shifted, logarithm = defining(op.lhs, "relax.subtract"), defining(op.rhs, "relax.log")
    if shifted is None or logarithm is None or not beside(op.lhs, b):
        return decline("it is no difference of a difference and a logarithm")
    axis = _kept_axis(shifted.rhs, "reduce_max", shifted.lhs)
    total = defining(without_unit_dims(logarithm.x), "relax.reduce_sum")
    power = None if total is None else defining(total.x, "relax.exp")
    if (
        axis is None
        or total is None
        or power is None
        or power.x != op.lhs
        or _kept_axis(logarithm.x, "reduce_sum", total.x) != axis
    ):
        return decline("the logarithm is not of the sum over the axis whose maximum is subtracted")
    return b.emit(OPS["log_softmax"], shifted.lhs, axis=axis)


def _kept_axis(value: ir.Value, name: str, x: ir.Value) -> int | None:
    """Return the axis over which a value is a reduction of x, with the axis kept as a dim of 1."""
    producer = defining(without_unit_dims(value), f"relax.{name}")
    if producer is None or producer.x != x or kind_of(value).shape != _kept_shape(producer):
        return None
    rank = kind_of(x).rank
    axes = list(producer.axes) if producer.axes is not None else list(range(rank))
    return axes[0] % rank if len(axes) == 1 else None
