"""Recognition of decomposed activations: sigmoid, SiLU, hard sigmoid, hard swish, Mish."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of
from mirlo.passes.rules import Decline, decline, recognize

_CLOSE = 1e-3
"""Tolerance for constants in models that were stored as 16-bit floats."""


@recognize("relax.divide", "relax.reciprocal")
def sigmoid(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace 1 / (1 + exp(-x)) by sigmoid; with numerator x by SiLU."""
    is_quotient = op.operation.name == "relax.divide"
    x = _logistic(op.rhs if is_quotient else op.x, b)
    if x is None or x.type != op.output.type:
        return decline("the divisor is not 1 + exp(-x)")
    if not is_quotient or b.splat(op.lhs) == 1:
        return b.emit(OPS["sigmoid"], x)
    return b.emit(OPS["silu"], x) if op.lhs == x else decline("the dividend is neither 1 nor x")


@recognize("relax.multiply")
def silu(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace x * sigmoid(x) by SiLU."""
    for x, gate in _orders(op):
        producer = defining(gate, "relax.sigmoid")
        if producer is not None and producer.x == x and beside(gate, b):
            return b.emit(OPS["silu"], x)
    return decline("no operand is the sigmoid of the other")


@recognize("relax.multiply")
def mish(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace x * tanh(softplus(x)) by Mish."""
    for x, gate in _orders(op):
        tanh = defining(gate, "relax.tanh")
        inner = defining(tanh.x, "relax.softplus") if tanh is not None else None
        if inner is not None and inner.x == x and beside(gate, b):
            return b.emit(OPS["mish"], x)
    return decline("no operand is tanh(softplus(x)) of the other")


@recognize("relax.divide", "relax.multiply")
def hard_sigmoid(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace clip(x + 3, 0, 6) / 6 by hard sigmoid."""
    for value, number in _scaled(op, b):
        x = _shifted_clip(value, b)
        if x is not None and _is(number, 1 / 6) and x.type == op.output.type:
            return b.emit(OPS["hard_sigmoid"], x, alpha=1 / 6, beta=0.5)
    return decline("it is not clip(x + 3, 0, 6) / 6")


@recognize("relax.multiply", "relax.divide")
def hard_swish(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace x * hard_sigmoid(x), and x * clip(x + 3, 0, 6) / 6 in any order, by hard swish."""
    if op.operation.name == "relax.multiply":
        for x, gate in _orders(op):
            producer = defining(gate, "relax.hard_sigmoid")
            if producer is not None and producer.x == x and _is(producer.alpha, 1 / 6) and producer.beta == 0.5:
                return b.emit(OPS["hard_swish"], x)
    for value, number in _scaled(op, b):
        product = defining(value, "relax.multiply")
        for x, gate in _orders(product) if product is not None and _is(number, 1 / 6) else ():
            inner = _shifted_clip(gate, b)
            if inner is not None and inner == x and x.type == op.output.type:
                return b.emit(OPS["hard_swish"], x)
    return decline("it is not x * clip(x + 3, 0, 6) / 6")


def _orders(op: ir.OpView) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield both readings of a product as x times a value of the same type."""
    if op.lhs.type == op.rhs.type:
        yield op.lhs, op.rhs
        yield op.rhs, op.lhs


def _scaled(op: ir.OpView, b: Rewriter) -> Iterator[tuple[ir.Value, float]]:
    """Yield the operand that an operation scales, and the constant it is multiplied by."""
    if op.operation.name == "relax.divide":
        number = b.splat(op.rhs)
        if number:
            yield op.lhs, 1.0 / number
        return
    for value, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        number = b.splat(factor)
        if number is not None:
            yield value, number


def _shifted_clip(value: ir.Value, b: Rewriter) -> ir.Value | None:
    """Return the x of clip(x + 3, 0, 6)."""
    clip = defining(value, "relax.clip")
    if clip is None or (clip.min, clip.max) != (0, 6) or not beside(value, b):
        return None
    total = defining(clip.x, "relax.add")
    if total is None:
        return None
    for x, number in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        if b.splat(number) == 3 and x.type == value.type:
            result: ir.Value = x
            return result
    return None


def _logistic(value: ir.Value, b: Rewriter) -> ir.Value | None:
    """Return the x of 1 + exp(-x)."""
    total = defining(value, "relax.add")
    if total is None or not beside(value, b) or not kind_of(value).dtype.is_float:
        return None
    for one, other in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        exponential = defining(other, "relax.exp")
        if b.splat(one) != 1 or exponential is None:
            continue
        negated = defining(exponential.x, "relax.negative")
        if negated is not None:
            result: ir.Value = negated.x
            return result
        product = defining(exponential.x, "relax.multiply")
        for x, number in ((product.lhs, product.rhs), (product.rhs, product.lhs)) if product is not None else ():
            if b.splat(number) == -1:
                operand: ir.Value = x
                return operand
    return None


def _is(found: float, wanted: float) -> bool:
    return math.isclose(found, wanted, rel_tol=_CLOSE)
