"""Errors of results relative to their references.

Models are judged on machines without the compiler: it is not imported.
"""

from __future__ import annotations

import numpy as np

from mirlo.passes.lower.formats import FORMATS

Array = np.ndarray
WIDE = np.longdouble


def relative_error(got: np.ndarray, expected: np.ndarray, least: float = 1.0) -> float:
    """Return the largest difference, relative to the largest element or to `least`; infinite if NaN meets a number."""
    wanted = expected.astype(np.float64)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    if same.all():
        return 0.0
    difference = np.where(same, 0.0, np.abs(got - wanted))
    if not np.isfinite(difference).all():
        return float("inf")
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(difference.max() / max(least, float(finite.max(initial=0.0))))


def ulp_errors(got: Array, reference: Array, kind: str, least: float = 0.0) -> Array:
    """Return |got - reference| in units in the last place of the format, at the larger of the reference and `least`.

    It is infinite where one of them is NaN and the other is not, and where a zero has the wrong sign.
    """
    form = FORMATS[kind]
    with np.errstate(all="ignore"):
        overflow = WIDE(2.0**form.bias) * 2
        exact = np.clip(reference.astype(WIDE), -overflow, overflow)
        array = np.clip(got.astype(WIDE), -overflow, overflow)
        exponent = np.maximum(np.frexp(np.clip(np.abs(exact), WIDE(least), WIDE(form.largest)))[1] - 1, 1 - form.bias)
        unit = np.ldexp(WIDE(1), exponent - form.fraction)
        errors = np.abs(array - exact) / unit
        # What rounds to infinity is infinity.
        errors = np.where(np.isinf(got.astype(WIDE)) & (np.abs(exact) >= overflow), 0, errors)
        both_nan = np.isnan(array) & np.isnan(exact)
        wrong_zero = (least == 0) & (array == 0) & (np.signbit(array) != np.signbit(exact))
        return np.where(both_nan, 0, np.where(np.isnan(errors) | wrong_zero, np.inf, errors))
