"""Simplifications of arithmetic: identity elements, powers, exact reciprocals."""

from __future__ import annotations

import math

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import Decline, decline, simplify

_HOLDS = {("bf16", "f32"), ("f16", "f32"), ("bf16", "f64"), ("f16", "f64"), ("f32", "f64")}
"""Floats, and wider ones that represent all of their values."""


@simplify(Trait.NEUTRAL, producers=["relax.constant"])
def identity_element(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Remove identity elements: x + 0, x - 0, x * 1, x / 1."""
    lhs, rhs = op.operation.operands
    if b.splat(rhs) == op.NEUTRAL and lhs.type == op.operation.results[0].type:
        return lhs
    if Trait.COMMUTATIVE in op.TRAITS and b.splat(lhs) == op.NEUTRAL and rhs.type == op.operation.results[0].type:
        return rhs
    return decline("no operand is the identity element")


@simplify("relax.divide", producers=["relax.constant"])
def exact_reciprocal(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace x / c by x * (1 / c) where the reciprocal is exact: c is a power of two."""
    divisor = b.splat(op.rhs)
    kind = kind_of(op.rhs)
    if divisor is None or divisor == 0 or not kind.dtype.is_float or not math.isfinite(divisor):
        return decline("the divisor is not a single finite number")
    if abs(math.frexp(divisor)[0]) != 0.5:
        return decline("the reciprocal would be rounded", divisor=divisor)
    factor = b.constant(np.full(kind.static_shape, 1.0 / divisor, kind.dtype.to_numpy()), kind)
    return b.emit(OPS["multiply"], op.lhs, factor)


@simplify("relax.power", producers=["relax.constant"])
def small_power(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Expand powers by 1, 2, 3, 0.5 and -1 without the general function."""
    exponent = b.splat(op.rhs)
    if exponent is None or op.lhs.type != op.output.type:
        return decline("the exponent is not a single number for all elements")
    x, is_float = op.lhs, kind_of(op.lhs).dtype.is_float
    if exponent == 1:
        result: ir.Value = x
        return result
    if exponent == 2:
        return b.emit(OPS["square"], x)
    if exponent == 3:
        return b.emit(OPS["multiply"], b.emit(OPS["square"], x), x)
    if exponent == 0.5 and is_float:
        return b.emit(OPS["sqrt"], x)
    if exponent == -1 and is_float:
        return b.emit(OPS["reciprocal"], x)
    return decline("no cheaper form is known", exponent=exponent)


@simplify("relax.where", producers=["relax.constant"])
def constant_condition(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace `where` with a splat condition by the selected operand."""
    array = b.array(op.condition)
    if array is None:
        return decline("the condition is not known")
    chosen = op.x if array.all() else op.y if not array.any() else None
    if chosen is None:
        return decline("the condition differs between elements")
    if chosen.type != op.output.type:
        return decline("the chosen operand is broadcast")
    result: ir.Value = chosen
    return result


@simplify("relax.cast")
def identity_cast(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Remove a cast to the type of its operand."""
    return op.x if op.x.type == op.output.type else decline("the type changes")


@simplify("relax.cast", producers=["relax.cast"])
def widened_and_back(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Remove a cast to a wider float and back."""
    inner = defining(op.x, "relax.cast")
    if inner is None or inner.x.type != op.output.type:
        return decline("the operand is not a cast from the type")
    narrow, wide = kind_of(inner.x).dtype, kind_of(op.x).dtype
    if (narrow.name, wide.name) not in _HOLDS:
        return decline("the intermediate type does not represent all values", narrow=narrow.name, wide=wide.name)
    result: ir.Value = inner.x
    return result
