"""References of the error, gamma and Bessel functions in the widest float, by series, quadrature and iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.tools.conformance.errors import WIDE, Array

PI = WIDE("3.14159265358979323846264338327950288")
_BERNOULLI = [
    WIDE(a) / WIDE(b)
    for a, b in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798))
]
"""B2, B4 ... B18."""
_LARGE = 30
"""From here on, Stirling's series is exact to the last place."""
_POINTS = ((60, 192), (800, 1024))
"""Points of the trapezoidal rule for arguments up to a size: it converges exponentially for periodic functions."""
_ASYMPTOTIC = 800
"""From here on, Hankel's expansion is exact to the last place."""


def _sine_of_pi(x: Array) -> Array:
    """Return sin(pi x), exactly zero for integers."""
    r = x - 2 * np.rint(x / 2)
    return np.asarray(np.sin(PI * np.where(np.abs(r) > 0.5, np.sign(r) - r, r)))


def _log_gamma_of_positive(x: Array) -> Array:
    product, y = np.ones_like(x), x.copy()
    for _ in range(_LARGE):
        small = y < _LARGE
        product = np.where(small, product * y, product)
        y = np.where(small, y + 1, y)
    series = sum(b / (2 * k * (2 * k - 1) * y ** (2 * k - 1)) for k, b in enumerate(_BERNOULLI, start=1))
    return np.asarray((y - 0.5) * np.log(y) - y + np.log(2 * PI) / 2 + series - np.log(product))


def lgamma(x: Array) -> Array:
    y = np.abs(x)
    positive = np.where(np.isinf(y), np.inf, _log_gamma_of_positive(np.minimum(y, WIDE(1e4000))))
    reflected = np.log(PI / (y * np.abs(_sine_of_pi(y)))) - positive
    return np.where(x > 0, positive, np.where(np.isinf(x) | (x == 0), np.inf, reflected))


def tgamma(x: Array) -> Array:
    y = np.abs(x)
    positive = np.exp(np.where(y < 2000, _log_gamma_of_positive(np.minimum(y, 2000)), np.inf))
    reflected = -PI / (y * _sine_of_pi(y) * positive)
    negative = np.where(np.rint(x) == x, np.nan, reflected)
    array = np.where(x == 0, 1 / x, np.where(x < 0, negative, positive))
    return np.where(np.isnan(x), x, array)


def digamma(x: Array) -> Array:
    y, below = np.where(x < 0, 1 - x, x), np.zeros_like(x)
    for _ in range(_LARGE):
        small = y < _LARGE
        below = np.where(small, below + 1 / y, below)
        y = np.where(small, y + 1, y)
    series = sum(b / (2 * k * y ** (2 * k)) for k, b in enumerate(_BERNOULLI, start=1))
    array = np.log(y) - 1 / (2 * y) - series - below
    r = x - np.rint(x)
    reflected = np.where(r == 0, np.nan, array - PI / np.tan(PI * r))
    return np.where(x < 0, reflected, np.where(np.isposinf(x), np.inf, array))


def _exp_minus_square(x: Array) -> Array:
    # x² has twice the digits of x: its leading part by itself.
    head = x.astype(np.float32).astype(WIDE)
    return np.asarray(np.exp(-head * head) * np.exp(-(x - head) * (x + head)))


def _erf_series(x: Array) -> Array:
    term, total = x, x.copy()
    for n in range(1, 90):
        term = term * (2 * x * x) / (2 * n + 1)
        total = total + term
    return np.asarray(2 / np.sqrt(PI) * _exp_minus_square(x) * total)


def _erfc_fraction(x: Array) -> Array:
    tail = np.zeros_like(x)
    for n in range(160, 0, -1):
        tail = n / WIDE(2) / (x + tail)
    return np.asarray(_exp_minus_square(x) / np.sqrt(PI) / (x + tail))


def _erf_and_complement(x: Array) -> tuple[Array, Array]:
    """Return erf(|x|) and 1 - erf(|x|), each to the last place where it is below a half."""
    size = np.minimum(np.abs(x), 200)
    small, large = size < 2, size >= 2
    result, complement = np.full_like(x, np.nan), np.full_like(x, np.nan)
    result[small] = _erf_series(size[small])
    complement[small] = 1 - result[small]
    complement[large] = _erfc_fraction(size[large])
    result[large] = 1 - complement[large]
    return result, complement


def erfc(x: Array) -> Array:
    _, result = _erf_and_complement(x)
    return np.where(np.isnan(x), x, np.where(x < 0, 2 - result, result))


def erf(x: Array) -> Array:
    result, _ = _erf_and_complement(x)
    return np.where(np.isnan(x), x, np.copysign(result, x))


def erfinv(x: Array) -> Array:
    y = np.abs(x)
    inside = np.where(y < 1, y, WIDE(0.5))
    log = np.log1p(-inside) + np.log1p(inside)
    middle = 2 / (PI * WIDE(0.147)) + log / 2
    z = np.sqrt(np.sqrt(middle * middle - log / WIDE(0.147)) - middle)
    for _ in range(6):
        below, above = _erf_and_complement(z)
        left = np.where(inside < 0.5, below - inside, (1 - inside) - above)
        z = z - left / (2 / np.sqrt(PI) * np.exp(-z * z))
    array = np.where(y == 0, y, np.where(y < 1, z, np.where(y == 1, np.inf, np.nan)))
    return np.asarray(np.copysign(array, x))


def _mean(y: Array, function: Callable[[Array, np.longdouble], Array]) -> Array:
    """Return the mean of an even, periodic function f(y, angle) over all angles, for y up to the last of `_POINTS`."""
    values, place = np.unique(y, return_inverse=True)
    means, least = np.zeros_like(values), -1
    for most, count in _POINTS:
        inside = (values > least) & (values <= most)
        chosen, half = values[inside], PI / (count // 2)
        total = (function(chosen, WIDE(0)) + function(chosen, PI)) / 2
        for i in range(1, count // 2):
            total = total + function(chosen, i * half)
        means[inside], least = total / (count // 2), most
    return means[place].reshape(y.shape)


def _hankel(x: Array, order: int) -> tuple[Array, Array]:
    """Return P and Q of Hankel's expansion."""
    mu, term = WIDE(4 * order * order), np.ones_like(x)
    p, q = np.ones_like(x), np.zeros_like(x)
    for k in range(1, 12):
        term = term * (mu - (2 * k - 1) ** 2) / (k * 8 * x)
        if k % 2:
            q = q + term * (-1) ** (k // 2)
        else:
            p = p + term * (-1) ** (k // 2)
    return p, q


def _bessel(order: int) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        y = np.abs(x)
        near = np.where(y <= _ASYMPTOTIC, y, 0)
        value = _mean(near, lambda z, angle: np.cos(order * angle - z * np.sin(angle)))
        p, q = _hankel(np.maximum(y, _ASYMPTOTIC), order)
        sine, cosine = np.sin(y), np.cos(y)
        both, difference = (cosine + sine), (sine - cosine)
        wave = p * both - q * difference if order == 0 else p * difference + q * both
        far = np.where(np.isinf(y), 0, wave / np.sqrt(PI * y))
        array = np.where(y <= _ASYMPTOTIC, value, far)
        array = array if order == 0 else np.where(y == 0, y, array)
        return np.where(np.isnan(x), x, array * (np.where(np.signbit(x), -1, 1) if order else 1))

    return function


def _modified(order: int, scaled: bool) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        y = np.abs(x)
        near = np.where((y >= 1) & (y <= _ASYMPTOTIC), y, 1)
        value = _mean(near, lambda z, angle: np.cos(order * angle) * np.exp(z * (np.cos(angle) - 1)))
        large = np.maximum(y, _ASYMPTOTIC)
        mu, term, series = WIDE(4 * order * order), np.ones_like(x), np.ones_like(x)
        for k in range(1, 12):
            term = -term * (mu - (2 * k - 1) ** 2) / (k * 8 * large)
            series = series + term
        power = np.minimum(y, 1) / 2
        part = power if order else np.ones_like(x)
        taylor = part
        for k in range(1, 16):
            part = part * power * power / (k * (k + order))
            taylor = taylor + part
        small = np.where(y < 1, taylor * np.exp(-y), value)
        array = np.where(y <= _ASYMPTOTIC, small, series / np.sqrt(2 * PI * large))
        grown = array if scaled else np.where(np.isinf(y), np.inf, array * np.exp(np.minimum(y, WIDE(11000))))
        return np.where(np.isnan(x), x, grown * (np.where(np.signbit(x), -1, 1) if order else 1))

    return function


j0, j1 = _bessel(0), _bessel(1)
i0, i1 = _modified(0, scaled=False), _modified(1, scaled=False)
i0e, i1e = _modified(0, scaled=True), _modified(1, scaled=True)
