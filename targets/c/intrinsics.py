"""Intrinsics that are functions of C's math library; the default rules compute the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirlo.passes.rules import INTRINSIC, Decline, decline

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir

FUNCTIONS = {
    **{name: name for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "tgamma", "floor", "ceil",
        "trunc", "round", "pow", "atan2", "fmod", "remainder", "hypot", "copysign", "nextafter", "fma",
    )},
    "abs": "fabs", "roundeven": "rint",
}  # fmt: skip
"""The functions of math.h for f64 by intrinsic; those for f32 end with an f."""
MATH = frozenset(f"{name}{suffix}" for name in FUNCTIONS.values() for suffix in ("", "f"))
_SUFFIXES = {"f32": "f", "f64": ""}


def call_math(op: ir.OpView, b: Any) -> Any | Decline:
    """Lower to a call of the function in math.h."""
    if op.dtype not in _SUFFIXES or op.is_vector:
        return decline("math.h has scalars of f32 and f64", dtype=op.dtype)
    return b.call_extern(f"{FUNCTIONS[op.name]}{_SUFFIXES[op.dtype]}", op.dtype, *op.nums)


INTRINSIC.table(dict.fromkeys(FUNCTIONS, call_math), target="c")
