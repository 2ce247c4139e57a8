"""erf and erfc."""

from __future__ import annotations

from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.targets.llvm.intrinsics.elementary import doubled, elementary

# P and Q of x², with n = x · P and d = Q: erf(x) = 2nd / (n² + d²) for |x| ≤ 3.93, from where on it is 1
_ERF_LIMIT = 3.93
_ERF_P = (-4.89557806e-06, 0.000981040532, 0.0196825936, 0.168701738, 0.950122237)
_ERF_Q = (4.14443093e-05, 0.00562462397, 0.0661378354, 0.324317157, 1.68404782)


@elementary("erf", "f32")
def erf(b: ValueBuilder, x: Num) -> Num:
    x = b.clamp_below(b.clamp_above(x, _ERF_LIMIT), -_ERF_LIMIT)
    square = x * x
    return doubled(b, x * b.polynomial(square, _ERF_P), b.polynomial(square, _ERF_Q))
