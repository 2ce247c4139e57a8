"""erf and erfc."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import elementary, flip_sign, sign_bit
from mirlo.passes.lower.expansions.exponential import expm1_reduced, reduce_exp, scale
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.runtime.records import dataclass

# P and Q of x², with n = x + x · P and d = Q: erf(x) = 2nd / (n² + d²) for 0 ≤ x ≤ 3.93; beyond, it is 1. Of the near
# fractions, this one has values slightly below powers of two where those of erf are: their errors are small there
_ERF_LIMIT = 3.93
_ERF_P = (-5.20695949e-06, 0.0011747995, 0.0221834183, 0.192149609, 0.0392753631)
_ERF_Q = (5.45376579e-05, 0.00656632334, 0.0737043321, 0.368251920, 1.8420676)


@elementary("erf", "f32")
def erf(b: ValueBuilder, x: Num) -> Num:
    sign = sign_bit(b, x)
    size = flip_sign(b, x, sign)
    square = x * x
    n, d = b.multiply_add(size, b.polynomial(square, _ERF_P), size), b.polynomial(square, _ERF_Q)
    # n² is computed as nd + n · (n - d): near 1, where n is d, its error is that of nd, half of which cancels. In
    # tanh, which is shorter, it would take a fifth of the time more.
    product = n * d
    below = b.quotient(product + product, b.multiply_add(d, d, b.multiply_add(n, n - d, product)))
    # Exactly 1: GELU multiplies 1 + erf, where this cancels, by values of any magnitude.
    return flip_sign(b, b.select(size >= _ERF_LIMIT, 1.0, below), sign)


# erf(x) / x in x² for |x| ≤ 1
_ERF_SMALL_F64 = (
    5.945258796630805e-11,
    -1.1365664174651134e-09,
    1.4657879371241452e-08,
    -1.6350025151792596e-07,
    1.6460972810315018e-06,
    -1.4925593506474248e-05,
    0.00012055331036882581,
    -0.0008548326978741749,
    0.005223977624780859,
    -0.026866170645072893,
    0.11283791670954857,
    -0.3761263890318375,
    1.1283791670955126,
)


@dataclass(frozen=True)
class ErfcConstants:
    """erfc(x) = e^(-x²) · P(t) / (unit + 2·unit·x) for x ≥ 0, with t = (x - middle) / (x + middle)."""

    middle: float
    vanish: float
    """From here on, erfc(x) rounds to zero."""
    unit: float
    """Scale that improves the rounding of P, whose values are below 2."""
    polynomial: tuple[float, ...]


_ERFC = {
    "f32": ErfcConstants(
        middle=2.0,
        vanish=10.1,
        unit=1.5402710437774658,
        polynomial=(
            -0.00061699684,
            -0.00189442164,
            0.00202318071,
            0.013295128,
            -0.0124143921,
            -0.0834893137,
            0.252689689,
            -0.255733401,
            -0.142881677,
            1.96689284,
        ),
    ),
    "f64": ErfcConstants(
        middle=3.75,
        vanish=27.3,
        unit=1.0,
        polynomial=(
            -2.2431656490667075e-09,
            -4.15116778521418e-10,
            3.275765421962085e-08,
            1.4738090183351253e-08,
            -2.5314848824516663e-07,
            -4.672658716189919e-08,
            1.749103708717156e-06,
            -9.810492477561519e-07,
            -1.1443775534895103e-05,
            2.2387577149002988e-05,
            5.164926658974243e-05,
            -0.00029015503176244625,
            0.00029371357046088553,
            0.0017556260245752992,
            -0.009746579537758262,
            0.02836227740015053,
            -0.05869339859177648,
            0.09230432116152022,
            -0.10880393014164262,
            0.0822767384901131,
            0.003585415485462491,
            -0.1402405985855467,
            1.2375126308378275,
        ),
    ),
}


def _erfc_of_positive(b: ValueBuilder, x: Num) -> Num:
    constants = _ERFC[x.kind]
    x = b.clamp_above(x, constants.vanish)
    t = (x - constants.middle) / (x + constants.middle)
    square = x * x
    lost = b.fma(x, x, -square)
    r, n = reduce_exp(b, -square)
    factor = b.polynomial(t, constants.polynomial) / b.multiply_add(x, 2.0 * constants.unit, constants.unit)
    return scale(b, b.multiply_add(factor, expm1_reduced(b, r - lost), factor), n)


def _erf_below_one(b: ValueBuilder, x: Num) -> Num:
    return x * b.polynomial(x * x, _ERF_SMALL_F64)


@elementary("erf", "f64")
def erf_piecewise(b: ValueBuilder, x: Num) -> Num:
    large = 1.0 - _erfc_of_positive(b, b.abs(x))
    return b.select(b.abs(x) < 1.0, _erf_below_one(b, x), b.copysign(large, x))


@elementary("erfc", "f32")
def erfc(b: ValueBuilder, x: Num) -> Num:
    result = _erfc_of_positive(b, b.abs(x))
    return b.select(x < 0.0, 2.0 - result, result)


@elementary("erfc", "f64")
def erfc_piecewise(b: ValueBuilder, x: Num) -> Num:
    return b.select(b.abs(x) < 0.5, 1.0 - _erf_below_one(b, x), erfc(b, x))
