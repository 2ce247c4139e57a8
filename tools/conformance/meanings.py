"""The meaning of each intrinsic: a numpy function, evaluated in the widest float, and the error a target may make.

Floating-point operands arrive as `longdouble` (exact for every format); integers as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.tools.conformance import special
from mirlo.tools.conformance.errors import WIDE, Array


@dataclass(frozen=True)
class Meaning:
    """The reference of an intrinsic on floats, where its interesting arguments lie, and the bound of its error."""

    function: Callable[..., Array]
    near: tuple[tuple[float, float], ...] = ((-10.0, 10.0),)
    """Intervals that are sampled densely, beside the whole range of bit patterns."""
    ulp: dict[str, float] = field(default_factory=lambda: {"f32": 4.0, "f64": 4.0})
    """Largest error in units in the last place. 16-bit floats are always within half a unit and a hundredth."""
    least: float = 0.0
    """Results below this size are measured in units of its last place: beside the zeros of a function, and where it
    vanishes, only the absolute error is bounded."""
    within: dict[str, float] = field(default_factory=dict)
    """Largest size of an argument for which the bound holds, where that is not all."""


def _each(function: Callable[..., float]) -> Callable[..., Array]:
    """Apply a function element by element in f64, for functions whose result is exact."""

    def apply(*arrays: Array) -> Array:
        return np.array([function(*map(float, row)) for row in zip(*arrays, strict=True)], WIDE)

    return apply


def _or_nan(function: Callable[..., float]) -> Callable[..., float]:
    def guarded(*numbers: float) -> float:
        try:
            return function(*numbers)
        except ValueError:
            return math.nan

    return guarded


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.asarray(np.copysign(np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole), x))


_GROWTH = ((-1.0, 1.0), (-110.0, 110.0), (-750.0, 750.0))
_ANGLE_RANGES = ((-4.0, 4.0), (-1e4, 1e4), (-1e9, 1e9))
_SPECIAL = {"f32": 12.0, "f64": 12.0}
_EXACT = {"f32": 0.0, "f64": 0.0}
_ROUNDED = {"f32": 0.5, "f64": 0.5}

FLOAT: dict[str, Meaning] = {
    "exp": Meaning(np.exp, _GROWTH),
    "exp2": Meaning(np.exp2, ((-1.0, 1.0), (-160.0, 160.0), (-1100.0, 1100.0))),
    "expm1": Meaning(np.expm1, _GROWTH),
    "sigmoid": Meaning(sigmoid, _GROWTH),
    "log": Meaning(np.log, ((0.5, 2.0), (0.0, 1e4))),
    "log2": Meaning(np.log2, ((0.5, 2.0), (0.0, 1e4))),
    "log10": Meaning(np.log10, ((0.5, 2.0), (0.0, 1e4))),
    "log1p": Meaning(np.log1p, ((-1.0, 1.0), (0.0, 1e4))),
    "sin": Meaning(np.sin, _ANGLE_RANGES),
    "cos": Meaning(np.cos, _ANGLE_RANGES),
    "tan": Meaning(np.tan, _ANGLE_RANGES),
    "asin": Meaning(np.arcsin, ((-1.0, 1.0),)),
    "acos": Meaning(np.arccos, ((-1.0, 1.0),)),
    "atan": Meaning(np.arctan),
    "atan2": Meaning(np.arctan2),
    "sinh": Meaning(np.sinh, _GROWTH),
    "cosh": Meaning(np.cosh, _GROWTH),
    "tanh": Meaning(np.tanh, ((-1.0, 1.0), (-10.0, 10.0), (-20.0, 20.0))),
    "asinh": Meaning(np.arcsinh),
    "acosh": Meaning(np.arccosh, ((1.0, 2.0), (1.0, 100.0))),
    "atanh": Meaning(np.arctanh, ((-1.0, 1.0),)),
    "erf": Meaning(special.erf, ((-1.0, 1.0), (-4.5, 4.5), (-7.0, 7.0))),
    "erfc": Meaning(special.erfc, ((-1.0, 1.0), (-5.0, 11.0), (-5.0, 28.0)), {"f32": 4.0, "f64": 5.0}),
    "erfinv": Meaning(special.erfinv, ((-1.0, 1.0), (0.99, 1.0)), {"f32": 6.0, "f64": 6.0}),
    "lgamma": Meaning(special.lgamma, ((0.0, 4.0), (-30.0, 30.0), (0.0, 1e5)), _SPECIAL, 1.0),
    "tgamma": Meaning(special.tgamma, ((0.0, 10.0), (-8.0, 33.0)), {"f32": 16.0, "f64": 16.0}),
    "digamma": Meaning(special.digamma, ((0.0, 4.0), (-30.0, 30.0), (0.0, 1e5)), {"f32": 32.0, "f64": 32.0}, 1.0),
    "j0": Meaning(special.j0, ((-8.0, 8.0), (-100.0, 100.0)), _SPECIAL, 1.0),
    "j1": Meaning(special.j1, ((-8.0, 8.0), (-100.0, 100.0)), _SPECIAL, 1.0),
    "i0": Meaning(special.i0, ((-8.0, 8.0), (-80.0, 80.0)), _SPECIAL),
    "i0e": Meaning(special.i0e, ((-8.0, 8.0), (-700.0, 700.0)), _SPECIAL),
    "i1": Meaning(special.i1, ((-8.0, 8.0), (-80.0, 80.0)), _SPECIAL),
    "i1e": Meaning(special.i1e, ((-8.0, 8.0), (-700.0, 700.0)), _SPECIAL),
    "sqrt": Meaning(np.sqrt, ulp=_ROUNDED),
    "rsqrt": Meaning(lambda x: 1 / np.sqrt(x), ((0.0, 4.0),), {"f32": 1.6, "f64": 1.6}),
    "cbrt": Meaning(np.cbrt, ulp={"f32": 1.0, "f64": 1.0}),
    "pow": Meaning(np.power, ((0.0, 4.0), (-30.0, 30.0)), {"f32": 2.0, "f64": 2.0}),
    "hypot": Meaning(np.hypot, ulp={"f32": 1.0, "f64": 1.0}),
    "fmod": Meaning(np.fmod, ulp=_EXACT),
    "remainder": Meaning(_each(_or_nan(math.remainder)), ulp=_EXACT),
    "floor": Meaning(np.floor, ulp=_EXACT),
    "ceil": Meaning(np.ceil, ulp=_EXACT),
    "trunc": Meaning(np.trunc, ulp=_EXACT),
    "round": Meaning(round_half_away, ulp=_EXACT),
    "roundeven": Meaning(np.rint, ulp=_EXACT),
    "abs": Meaning(np.abs, ulp=_EXACT),
    "copysign": Meaning(np.copysign, ulp=_EXACT),
    "isnan": Meaning(np.isnan, ulp=_EXACT),
    "isinf": Meaning(np.isinf, ulp=_EXACT),
    "isfinite": Meaning(np.isfinite, ulp=_EXACT),
}
"""By intrinsic. `fma`, `nextafter` and `ldexp` depend on the format and have tests of their own."""


def _unsigned(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def wrapped(x: int, bits: int) -> int:
    """Return x modulo 2^bits as a signed integer."""
    x = _unsigned(x, bits)
    return x - (1 << bits) if x >> (bits - 1) else x


def _saturated(x: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min(x, (1 << (bits - 1)) - 1))


def _fixed_mul(bits: int, x: int, y: int, shift: int) -> int:
    count = min(_unsigned(shift, bits), 2 * bits - 2)
    return (x * y + ((1 << count) >> 1)) >> count


def _trailing_zeros(bits: int, x: int) -> int:
    low = _unsigned(x, bits)
    return (low & -low).bit_length() - 1 if low else bits


INTEGER: dict[str, Callable[..., int]] = {
    "popcount": lambda bits, x: _unsigned(x, bits).bit_count(),
    "clz": lambda bits, x: bits - _unsigned(x, bits).bit_length(),
    "ctz": _trailing_zeros,
    "sat_adds": lambda bits, x, y: _saturated(x + y, bits),
    "sat_subs": lambda bits, x, y: _saturated(x - y, bits),
    "sat_addu": lambda bits, x, y: min(_unsigned(x, bits) + _unsigned(y, bits), (1 << bits) - 1),
    "sat_subu": lambda bits, x, y: max(_unsigned(x, bits) - _unsigned(y, bits), 0),
    "shl": lambda bits, x, n: x << _unsigned(n, bits) if _unsigned(n, bits) < bits else 0,
    "shru": lambda bits, x, n: _unsigned(x, bits) >> min(_unsigned(n, bits), bits),
    "shrs": lambda bits, x, n: x >> min(_unsigned(n, bits), bits),
    "fixed_mul": _fixed_mul,
}
"""By intrinsic: from the width and Python integers (signed) to an integer that is then taken modulo 2^width."""
