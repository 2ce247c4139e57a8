"""The references of the gamma and Bessel functions, against values of published tables and identities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from mirlo.tools.conformance import special
from mirlo.tools.conformance.errors import WIDE

X = np.concatenate([np.linspace(-20.3, 40, 401), np.linspace(0.01, 5, 100)]).astype(WIDE)
TABLE = {
    # Abramowitz and Stegun, tables 6.1, 9.1, 9.8, 6.3
    "j0": {1.0: 0.7651976865579665514, 10.0: -0.2459357644513483352, 50.0: 0.0558123276692518},
    "j1": {1.0: 0.4400505857449335159, 10.0: 0.0434727461688614367, 50.0: -0.0975118281251751},
    "i0": {1.0: 1.2660658777520083356, 5.0: 27.2398718236044468946},
    "i1": {1.0: 0.5651591039924850272, 5.0: 24.3356421424505250},
    "digamma": {1.0: -0.5772156649015328606, 0.5: -1.9635100260214234794, 10.0: 2.2517525890667211077},
    "erfinv": {0.5: 0.4769362762044698734, 0.9: 1.1630871536766740867},
}


@pytest.mark.parametrize("name", TABLE)
def test_tables(name: str) -> None:
    for x, wanted in TABLE[name].items():
        (found,) = getattr(special, name)(np.array([x], WIDE))
        assert float(found) == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize(("function", "known"), [(special.lgamma, math.lgamma), (special.tgamma, math.gamma)])
def test_gamma_of_the_standard_library(function: Callable[..., np.ndarray], known: Callable[[float], float]) -> None:
    wanted = [known(float(x)) for x in X]
    np.testing.assert_allclose(function(X).astype(float), wanted, rtol=1e-13, atol=1e-14)


def test_identities() -> None:
    y = np.linspace(0.5, 700, 97).astype(WIDE)
    # The derivative of j0 is -j1, that of i0 is i1; digamma is that of lgamma.
    h = WIDE(2.0) ** -20
    for function, derivative, sign in ((special.j0, special.j1, -1), (special.lgamma, special.digamma, 1)):
        slope = (function(y + h) - function(y - h)) / (2 * h)
        np.testing.assert_allclose(slope.astype(float), (sign * derivative(y)).astype(float), atol=1e-8)
    np.testing.assert_allclose(
        (special.i0e(y) * np.exp(y)).astype(float), special.i0(y).astype(float), rtol=1e-14
    )  # fmt: skip


@pytest.mark.parametrize("name", ["lgamma", "tgamma", "digamma", "j0", "j1", "i0", "i1", "i0e", "i1e"])
def test_scipy_agrees(name: str) -> None:
    scipy = pytest.importorskip("scipy.special")
    known = {"lgamma": "gammaln", "tgamma": "gamma"}.get(name, name)
    with np.errstate(all="ignore"):
        wanted, found = getattr(scipy, known)(X.astype(float)), getattr(special, name)(X).astype(float)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
