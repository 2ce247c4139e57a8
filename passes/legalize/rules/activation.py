"""Default rules of activations: one table row each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Expr, abs_, call, constant, erf, exp, maximum, minimum, select, sigmoid, tanh
from mirlo.passes.legalize.helpers import elementwise, short_name, wide
from mirlo.passes.rules import legalize


def _softplus(x: Expr) -> Expr:
    # log(1 + exp(x)) overflows for large x; this form does not.
    return maximum(x, 0.0) + call("log1p", exp(-abs_(x)))


def _exp_minus_1(x: Expr) -> Expr:
    """Return exp(x) - 1 for the negative side of an activation; 0 for x > 0, where exp might overflow."""
    return call("expm1", minimum(x, 0.0))


def _gelu(x: Expr, op: ir.OpView) -> Expr:
    if op.approximate == "tanh":
        # (1 + tanh(u)) / 2 = 1 / (1 + 2^(-2u log2 e)), which keeps precision where tanh(u) is near -1.
        scale = -2.0 * math.sqrt(2.0 / math.pi) / math.log(2.0)
        return x / (1.0 + call("exp2", x * (x * x * (0.044715 * scale) + scale)))
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return minimum(maximum(alpha * x + beta, 0.0), 1.0)


def _shrink(x: Expr, op: ir.OpView) -> Expr:
    return select(x < -op.lambd, x + op.bias, select(x > op.lambd, x - op.bias, constant(0, x.dtype)))


FLOAT: dict[str, Callable[[Expr, Any], Expr]] = {
    "leaky_relu": lambda x, op: select(x >= 0.0, x, x * op.alpha),
    "elu": lambda x, op: select(x > 0.0, x, op.alpha * _exp_minus_1(x)),
    "selu": lambda x, op: op.gamma * select(x > 0.0, x, op.alpha * _exp_minus_1(x)),
    "celu": lambda x, op: maximum(x, 0.0) + minimum(op.alpha * _exp_minus_1(x / op.alpha), 0.0),
    "sigmoid": lambda x, op: sigmoid(x),
    "hard_sigmoid": lambda x, op: _hard_sigmoid(x, op.alpha, op.beta),
    "hard_swish": lambda x, op: x * _hard_sigmoid(x, 1.0 / 6.0, 0.5),
    "silu": lambda x, op: x * sigmoid(x),
    "mish": lambda x, op: x * tanh(_softplus(x)),
    "softplus": lambda x, op: _softplus(x),
    "softsign": lambda x, op: x / (1.0 + abs_(x)),
    "thresholded_relu": lambda x, op: select(x > op.alpha, x, constant(0.0, x.dtype)),
    "gelu": _gelu,
}
"""Activations of floats; low precision is computed in f32."""


@legalize(*(f"relax.{name}" for name in FLOAT))
def activation(op: ir.OpView, b: Any) -> Any:
    function = FLOAT[short_name(op)]
    return elementwise(op, b, [op.x], lambda x: function(wide(x), op).cast(x.dtype))


@legalize("relax.relu")
def relu(op: ir.OpView, b: Any) -> ir.Value:
    return elementwise(op, b, [op.x], lambda x: maximum(x, 0))


@legalize("relax.prelu")
def prelu(op: ir.OpView, b: Any) -> ir.Value:
    return elementwise(op, b, [op.x, op.slope], lambda x, slope: select(x < 0, x * slope, x))


@legalize("relax.shrink")
def shrink(op: ir.OpView, b: Any) -> ir.Value:
    def function(x: Expr) -> Expr:
        if x.dtype.is_float:
            return _shrink(wide(x), op).cast(x.dtype)
        # The bounds are floats, so an integer is compared as float.
        return _shrink(x.cast("f64"), op).cast(x.dtype)

    return elementwise(op, b, [op.x], function)


@legalize("relax.clip")
def clip(op: ir.OpView, b: Any) -> ir.Value:
    def function(x: Expr) -> Expr:
        if op.min is not None:
            x = maximum(x, _bound(op.min, x, math.ceil))
        if op.max is not None:
            x = minimum(x, _bound(op.max, x, math.floor))
        return x

    return elementwise(op, b, [op.x], function)


def _bound(value: float, x: Expr, inward: Callable[[float], int]) -> Expr:
    """Return a bound as an element of the operand's type; for integers one that the type can hold."""
    if x.dtype.is_float:
        return constant(value, x.dtype)
    bits = x.dtype.bits - (not x.dtype.is_unsigned)
    low, high = (0 if x.dtype.is_unsigned else -(1 << bits)), (1 << bits) - 1
    if math.isinf(value):
        return constant(low if value < 0 else high, x.dtype)
    return constant(min(max(inward(value), low), high), x.dtype)
