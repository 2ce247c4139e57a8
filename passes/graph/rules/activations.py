"""Recognition of decomposed activations: sigmoid, SiLU, hard sigmoid, hard swish, Mish."""

from __future__ import annotations

import math

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.byoc.operators import is_const, is_op, wildcard
from mirlo.passes.byoc.pattern import Pattern
from mirlo.passes.byoc.search import Match
from mirlo.passes.graph.rewrite import Rewriter
from mirlo.passes.rules import Decline, decline, recognize

_CLOSE = 1e-3
"""Tolerance for constants in models that were stored as 16-bit floats."""

add, multiply, divide = is_op("relax.add"), is_op("relax.multiply"), is_op("relax.divide")
x, c = wildcard().named("x"), is_const().named("c")
negated = is_op("relax.negative")(x) | multiply(x, is_const(-1))
exponential_and_one = add(is_op("relax.exp")(negated), is_const(1)).has_dtype("f16", "bf16", "f32", "f64")
shifted_clip = is_op("relax.clip")(add(x, is_const(3))).has_attr(min=0, max=6)


def scaled(value: Pattern) -> Pattern:
    """Return a pattern of a value that is multiplied or divided by a constant."""
    return multiply(value, c) | divide(value, c)


@recognize(divide(wildcard().named("dividend"), exponential_and_one) | is_op("relax.reciprocal")(exponential_and_one))
def sigmoid(match: Match, b: Rewriter) -> ir.Value | Decline:
    """Replace 1 / (1 + exp(-x)) by sigmoid; with numerator x by SiLU."""
    if not _keeps_type(match):
        return decline("x is broadcast")
    dividend = match.get("dividend")
    if dividend is None or b.splat(dividend.mlir) == 1:
        return b.emit(OPS["sigmoid"], match["x"])
    return b.emit(OPS["silu"], match["x"]) if dividend is match["x"] else decline("the dividend is neither 1 nor x")


@recognize(multiply(x, is_op("relax.sigmoid")(x)))
def silu(match: Match, b: Rewriter) -> ir.Value:
    """Replace x * sigmoid(x) by SiLU."""
    return b.emit(OPS["silu"], match["x"])


@recognize(multiply(x, is_op("relax.tanh")(is_op("relax.softplus")(x))))
def mish(match: Match, b: Rewriter) -> ir.Value:
    """Replace x * tanh(softplus(x)) by Mish."""
    return b.emit(OPS["mish"], match["x"])


@recognize(scaled(shifted_clip))
def hard_sigmoid(match: Match, b: Rewriter) -> ir.Value | Decline:
    """Replace clip(x + 3, 0, 6) / 6 by hard sigmoid."""
    if not _is_sixth(match, b):
        return decline("it is not clip(x + 3, 0, 6) / 6")
    return b.emit(OPS["hard_sigmoid"], match["x"], alpha=1 / 6, beta=0.5)


@recognize(
    multiply(x, is_op("relax.hard_sigmoid")(x).has_attr(alpha=lambda alpha: _is_close(alpha, 1 / 6), beta=0.5))
    | scaled(multiply(x, shifted_clip))
)
def hard_swish(match: Match, b: Rewriter) -> ir.Value | Decline:
    """Replace x * hard_sigmoid(x), and x * clip(x + 3, 0, 6) / 6 in any order, by hard swish."""
    if "c" in match and not _is_sixth(match, b):
        return decline("it is not x * clip(x + 3, 0, 6) / 6")
    return b.emit(OPS["hard_swish"], match["x"])


def _keeps_type(match: Match) -> bool:
    """Return whether x has the type of the result: it is not broadcast."""
    return match["x"].mlir.type == match.root.op.results[0].type


def _is_sixth(match: Match, b: Rewriter) -> bool:
    """Return whether c multiplies by 1 / 6, and x is not broadcast."""
    number = b.splat(match["c"].mlir)
    if not number or not _keeps_type(match):
        return False
    return _is_close(1 / number if match.root.name == "relax.divide" else number, 1 / 6)


def _is_close(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=_CLOSE)
