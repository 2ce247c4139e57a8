"""Intrinsics that are functions of C's math library; the default rules compute the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.lower.intrinsics import TARGET
from mirlo.passes.rules import INTRINSIC, Decline, decline
from mirlo.passes.targets import declared_target
from mirlo.targets.c.processor import CProcessor

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.lower.num import Num
    from mirlo.passes.lower.values import ValueBuilder

FUNCTIONS = {
    **{name: name for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "tgamma", "floor", "ceil",
        "trunc", "round", "pow", "atan2", "fmod", "remainder", "hypot", "copysign", "nextafter", "fma",
    )},
    "abs": "fabs", "roundeven": "rint",
}  # fmt: skip
"""The functions of math.h for f64 by intrinsic; those for f32 end with an f."""
_CALLED = "mirlo_c_{}"
"""The symbol of a function in the IR, where a kernel may be called `exp`."""
MATH = {_CALLED.format(f"{name}{suffix}"): f"{name}{suffix}" for name in FUNCTIONS.values() for suffix in ("", "f")}
"""The functions of math.h by their symbols in the IR."""
_SUFFIXES = {"f32": "f", "f64": ""}


def call_math(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Lower to a call of the function in math.h."""
    if op.dtype not in _SUFFIXES or op.is_vector:
        return decline("math.h has scalars of f32 and f64", dtype=op.dtype)
    return _called(b, FUNCTIONS[op.name], op.dtype, *op.nums)


def sigmoid(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Lower to an exponential of math.h, which is shorter than the default rule's and needs no fused products.

    In f64 an element of f32 takes less time than in f32, and is rounded once.
    """
    if op.dtype not in _SUFFIXES or op.is_vector:
        return decline("math.h has scalars of f32 and f64", dtype=op.dtype)
    x = op.nums[0]
    if _is_widened(op):
        return b.convert(1.0 / (_called(b, "exp", "f64", -b.convert(x, "f64")) + 1.0), "f32")
    is_negative = x < 0.0
    small = _called(b, "exp", op.dtype, b.select(is_negative, x, -x))
    return b.select(is_negative, small, 1.0) / (small + 1.0)


def tanh(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Lower to an exponential of f64, which takes less time than `tanhf` and is rounded once."""
    if not _is_widened(op):
        return call_math(op, b)
    x = op.nums[0]
    small = _called(b, "exp", "f64", b.convert(b.abs(x), "f64") * -2.0)
    result = b.copysign(b.convert((1.0 - small) / (small + 1.0), "f32"), x)
    return b.select(b.abs(x) < 2.0**-14, x, result)


def _is_widened(op: ir.OpView) -> bool:
    """Return whether a scalar of f32 is computed in f64: not for processors that may have no instructions for it."""
    if op.dtype != "f32" or op.is_vector:
        return False
    return not isinstance(declared_target(op.options[TARGET]), CProcessor)


def _called(b: ValueBuilder, function: str, kind: str, *values: Num) -> Num:
    result: Num = b.call_extern(_CALLED.format(f"{function}{_SUFFIXES[kind]}"), kind, *values)
    return result


INTRINSIC.table({**dict.fromkeys(FUNCTIONS, call_math), "sigmoid": sigmoid, "tanh": tanh}, target="c")
