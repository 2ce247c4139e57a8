"""Comparison of results within tolerances."""

from __future__ import annotations

from typing import TypeAlias

import ml_dtypes
import numpy as np

from mirlo.runtime.records import dataclass

ModelValue: TypeAlias = "np.ndarray | list[ModelValue] | tuple[ModelValue, ...] | None"
"""A value of a model: a tensor, a sequence, or an optional value that is absent."""
_EPSILON_FACTOR = 2000
"""Default tolerance in units of rounding: f32 allows 2.4e-4; f16 cannot be closer than its own spacing."""


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference of floats: `rtol` times the expected value, and `atol` times the largest expected one."""

    rtol: float | None = None
    atol: float | None = None
    declared: float = 0.0
    """The error that code generators declare, which is allowed unless `rtol` is given."""

    def of(self, dtype: np.dtype) -> tuple[float, float]:
        """Return the tolerances for arrays of an element type."""
        try:
            epsilon = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
        except ValueError:
            is_quantized = dtype.kind in "iu" and dtype.itemsize <= 2
            return 0.0, (self.atol or 0.0) if is_quantized else 0.0
        rtol = max(tolerance_of(epsilon), self.declared) if self.rtol is None else self.rtol
        return rtol, (rtol if self.atol is None else self.atol)


def tolerance_of(epsilon: float) -> float:
    """Return the tolerance for an epsilon. Low precision types are computed in f32: only the last rounding differs."""
    return min(_EPSILON_FACTOR * epsilon, max(4 * epsilon, 1e-3))


def difference(actual: ModelValue, expected: ModelValue, tolerance: Tolerance) -> str | None:
    """Return the difference between two results as text; None if they agree."""
    if expected is None or actual is None or isinstance(expected, (list, tuple)):
        return _of_objects(actual, expected, tolerance)
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype != expected.dtype:
        return f"element type {actual.dtype}, expected {expected.dtype}"
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype.kind in "OSU":
        wrong = actual.astype(str) != expected.astype(str)
        return f"{int(wrong.sum())} of {wrong.size} strings differ" if wrong.any() else None
    wrong = _wrong(actual, expected, tolerance)
    if not wrong.any():
        return None
    if expected.dtype.kind not in "biu":
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        actual, expected = actual.astype(kind), expected.astype(kind)
    return _worst(wrong, actual, expected)


def wrong_elements(actual: ModelValue, expected: ModelValue, tolerance: Tolerance) -> np.ndarray | None:
    """Return which elements differ, as an array of bool; None where it is not an array of that type and shape."""
    if expected is None or actual is None or isinstance(expected, (list, tuple)):
        return None
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return None
    return np.asarray(actual != expected) if actual.dtype.kind in "OSU" else _wrong(actual, expected, tolerance)


def _wrong(actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    rtol, atol = tolerance.of(expected.dtype)
    if not rtol and not atol and expected.dtype.kind in "biu":
        return np.asarray(actual != expected)
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = actual.astype(kind), expected.astype(kind)
    finite = np.isfinite(right)
    scale = float(np.abs(right[finite]).max()) if finite.any() else 0.0
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        near = np.isfinite(left) & finite & (np.abs(left - right) <= rtol * np.abs(right) + atol * scale)
    return np.asarray(~(same | near))


def _of_objects(actual: ModelValue, expected: ModelValue, tolerance: Tolerance) -> str | None:
    if expected is None or actual is None:
        return None if actual is expected else f"{actual}, expected {expected}"
    if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
        return f"not a sequence of {len(expected)}"
    for index, (left, right) in enumerate(zip(actual, expected, strict=True)):
        text = difference(left, right, tolerance)
        if text is not None:
            return f"item {index}: {text}"
    return None


def _worst(wrong: np.ndarray, actual: np.ndarray, expected: np.ndarray) -> str:
    """Return the number of wrong elements and the worst one as text."""
    places = np.argwhere(wrong)
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = [abs(float(actual[tuple(p)]) - float(expected[tuple(p)])) for p in places[:1000]]
    at = tuple(int(i) for i in places[int(np.nanargmax(gaps)) if not np.isnan(gaps).all() else 0])
    return f"{len(places)} of {wrong.size} elements differ; at {list(at)}: {actual[at]!s}, expected {expected[at]!s}"
