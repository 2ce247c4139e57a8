"""Special functions that PyTorch computes by kernels of its own, expressed by elementary functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from mirlo_torch.registry import decomposition

if TYPE_CHECKING:
    import torch

STEPS = 9
"""Terms of the sum of a zeta function that are added one by one, before its tail is expanded."""
BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)
"""Bernoulli numbers over factorials, of order 2, 4, 6, ...: the tail's coefficients."""


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type of computation: f64 for f64, else f32."""
    import torch

    return x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)


def _narrow(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a result in the type of x, or in f32 for integers."""
    return result.to(x.dtype) if x.is_floating_point() else result


@decomposition("aten.polygamma.default")
def polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    """Compute a derivative of digamma: at 0.5 and above by a zeta function, below by the reflection at 0.5."""
    import torch

    if n == 0:
        return torch.digamma(x)
    y = _wide(x)
    sign = 1 if n % 2 else -1
    above = sign * math.factorial(n) * _zeta(n + 1, torch.where(y < 0.5, 1 - y, y))
    is_trigamma = n == 1  # at its poles PyTorch has what rounded multiples of pi give
    angle = math.pi * (y if is_trigamma else y - y.round())
    reflected = -sign * above - _derivative_of_cotangent(n, angle.cos() / angle.sin())
    result = torch.where(y < 0.5, reflected, above)
    if not is_trigamma:
        result = torch.where((y <= 0) & (y == y.floor()), sign * math.inf, result)
    return _narrow(result, x)


def _zeta(s: int, q: torch.Tensor) -> torch.Tensor:
    """Return Hurwitz's zeta function, the sum of (q + k)^-s over k from 0, by Euler and Maclaurin."""
    total = reduce(lambda x, y: x + y, ((q + k) ** -s for k in range(STEPS)))
    end = q + STEPS
    power = end**-s
    total = total + end ** (1 - s) / (s - 1) + 0.5 * power
    rising, power = s, power / end
    for order, coefficient in enumerate(BERNOULLI):
        total = total + (coefficient * rising) * power
        rising *= (s + 2 * order + 1) * (s + 2 * order + 2)
        power = power / (end * end)
    return total


def _derivative_of_cotangent(n: int, cotangent: torch.Tensor) -> torch.Tensor:
    """Return the n-th derivative of pi cot(pi x): a polynomial of the cotangent, whose derivative is -pi (1 + c^2)."""
    coefficients = [0.0, math.pi]
    for _ in range(n):
        slopes = [-math.pi * power * value for power, value in enumerate(coefficients)][1:]
        coefficients = [one + other for one, other in zip([*slopes, 0.0, 0.0], [0.0, 0.0, *slopes], strict=True)]
    return _polynomial(coefficients[::-1], cotangent)


def _polynomial(coefficients: Sequence[float], x: torch.Tensor) -> torch.Tensor:
    """Return a polynomial with these coefficients, the one of the highest power first."""
    import torch

    result = torch.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        result = result * x + each
    return result


@decomposition("aten.special_erfcx.default")
def scaled_erfc(x: torch.Tensor) -> torch.Tensor:
    """Compute exp(x^2) erfc(x): as a product near 0, and from `FAR` on by a continued fraction."""
    import torch

    y = _wide(x)
    size = y.abs()
    near = size.clamp(max=FAR)
    product = (near * near).exp() * torch.erfc(near)
    far = tail = size.clamp(min=FAR)
    for number in range(DEPTH, 0, -1):
        tail = far + (number / 2) / tail
    positive = torch.where(size < FAR, product, 1 / (math.sqrt(math.pi) * tail))
    return _narrow(torch.where(y < 0, 2 * (y * y).exp() - positive, positive), x)


FAR, DEPTH = 2.5, 50
"""Where the continued fraction of erfcx begins, and the levels of it that are exact in f64 there."""


@decomposition("aten.special_ndtri.default")
def normal_quantile(x: torch.Tensor) -> torch.Tensor:
    """Compute the quantile of the normal distribution by the rational functions of Cephes."""
    import torch

    y = _wide(x)
    least = torch.minimum(y, 1 - y)
    is_central = least > CENTER
    middle = torch.where(is_central, y - 0.5, 0)
    square = middle * middle
    central = middle + middle * square * _polynomial(P0, square) / _polynomial(Q0, square)
    root = (-2 * torch.where(is_central, CENTER, least).log()).sqrt()
    z = 1 / root
    near, far = (z * _polynomial(p, z) / _polynomial(q, z) for p, q in ((P1, Q1), (P2, Q2)))
    tail = root - root.log() / root - torch.where(root < 8, near, far)
    tail = torch.where(least == 0, math.inf, tail)
    result = torch.where(is_central, central * math.sqrt(2 * math.pi), torch.where(y < 0.5, -tail, tail))
    return _narrow(result, x)


CENTER = math.exp(-2)
"""The probability above which the quantile is a function of the distance from 0.5, on both sides."""
P0 = (
    -5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1, 1.39312609387279679503e1,
    -1.23916583867381258016e0,
)  # fmt: skip
"""Coefficients of the quantile's numerators P and denominators Q, by Cephes: around 0.5, in tails, in far tails."""
Q0 = (
    1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1, -2.25462687854119370527e2,
    2.00260212380060660359e2, -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142e0,
)  # fmt: skip
P1 = (
    4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1, 4.40805073893200834700e1,
    1.46849561928858024014e1, 2.18663306850790267539e0, -1.40256079171354495875e-1, -3.50424626827848203418e-2,
    -8.57456785154685413611e-4,
)  # fmt: skip
Q1 = (
    1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1, 1.50425385692907503408e1,
    2.50464946208309415979e0, -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4,
)  # fmt: skip
P2 = (
    3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0, 1.33303460815807542389e0,
    2.01485389549179081538e-1, 1.23716634817820021358e-2, 3.01581553508235416007e-4, 2.65806974686737550832e-6,
    6.23974539184983293730e-9,
)  # fmt: skip
Q2 = (
    1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0, 2.16236993594496635890e-1,
    1.34204006088543189037e-2, 3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9,
)  # fmt: skip
