"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.targets.llvm.intrinsics.elementary import doubled, elementary
from mirlo.targets.llvm.intrinsics.exponential import expm1

# tanh(x/2) = x · P(x²) / Q(x²) for |x| ≤ 9.02, from where on tanh(x) is 1
_TANH_LIMIT = 9.02
_TANH_P = (0.000103559949, 0.0269832443, 0.90625)
_TANH_Q = (2.22837571e-06, 0.00218702829, 0.20500809, 1.8125)


@elementary("tanh", "f32")
def tanh(b: ValueBuilder, x: Num) -> Num:
    x = b.clamp_below(b.clamp_above(x, _TANH_LIMIT), -_TANH_LIMIT)
    square = x * x
    return doubled(b, x * b.polynomial(square, _TANH_P), b.polynomial(square, _TANH_Q))


@elementary("tanh", "f64")
def tanh_by_expm1(b: ValueBuilder, x: Num) -> Num:
    t = expm1(b, b.abs(x) * -2.0)
    return b.copysign(-t / (t + 2.0), x)
