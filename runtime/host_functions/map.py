"""Maps: Python dictionaries from strings or integers to scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np

from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.host import host_function
from mirlo.runtime.host_functions.string import parse_number
from mirlo.runtime.kinds import STRING

FEW_LABELS = 8
"""Labels up to which it takes less time to fill all dictionaries label by label; they grow beyond it."""
FEW_ROWS = 4
"""Rows up to which it takes less time to fill one dictionary after the other."""


@host_function("mirlo.map.zip", new=True, prepared=True)
def zip_labels(*, labels: Sequence[int | str]) -> Callable[[np.ndarray], tuple[dict[int | str, float], ...]]:
    """Return a dictionary from labels to scores for each row; of equal labels the last one counts."""
    count = len(labels)
    # As in ONNX Runtime's ordered map.
    order = sorted(range(count), key=lambda column: labels[column])
    keys = tuple(labels[column] for column in order)
    is_in_order = order == list(range(count))

    def zip_rows(scores: np.ndarray) -> tuple[dict[int | str, float], ...]:
        rows = scores if scores.ndim == 2 else scores.reshape(1, -1)
        if rows.shape[1] != count:
            raise ValueError(f"there are {count} labels for {rows.shape[1]} scores")
        if not is_in_order:
            rows = rows[:, order]
        if len(rows) == 1:
            return (dict(zip(keys, rows.tolist()[0], strict=True)),)
        if len(rows) <= FEW_ROWS or not 0 < count <= FEW_LABELS:
            return tuple(map(dict, map(zip, repeat(keys), rows.tolist())))
        scores_of, *others = zip(keys, rows.T.tolist(), strict=True)
        maps = [{scores_of[0]: score} for score in scores_of[1]]
        for label, column in others:
            for row, score in zip(maps, column, strict=True):
                row[label] = score
        return tuple(maps)

    return zip_rows


@host_function("mirlo.map.vector")
def vector(values: dict[int | str, float | str], *, vocabulary: Sequence[int | str], dtype: str) -> np.ndarray:
    """Return the values of some keys as a row; zero or the empty string where a key is missing."""
    missing: float | str = "" if dtype == STRING else 0
    row = [values.get(key, missing) for key in vocabulary]
    return np.array([row], object if dtype == STRING else numpy_dtype(dtype))


@host_function("mirlo.map.cast")
def cast(values: dict[int, float | str], *, dtype: str, length: int | None) -> np.ndarray:
    """Return the values as a row, by ascending keys; with a length, each at the place that is its key.

    Places without a key hold 0, or the text "0.f", as ONNX Runtime fills them. Keys after the last place are left out.
    """
    kind = object if dtype == STRING else numpy_dtype(dtype)
    if length is None:
        return np.array([[_scalar(values[key], dtype) for key in sorted(values)]], kind).reshape(1, len(values))
    if any(key < 0 for key in values):
        raise ValueError(f"the keys of a sparse map must not be negative, found {min(values)}")
    row = np.full((1, length), "0.f" if dtype == STRING else 0, kind)
    for key, value in values.items():
        if key < length:
            row[0, key] = _scalar(value, dtype)
    return row


def _scalar(value: float | str, dtype: str) -> float | str:
    """Cast a string or a float as C++ does: integers lose their fraction, texts of floats have six digits after it."""
    if dtype == STRING:
        return value if isinstance(value, str) else f"{float(value):f}"
    number = parse_number(value, dtype) if isinstance(value, str) else value
    if dtype == "f32":
        return float(number)
    try:
        result = int(number)
    except (ValueError, OverflowError):
        result = 1 << 63
    if not -(1 << 63) <= result < 1 << 63:
        raise ValueError(f"a value of the map is not an integer of 64 bits: {value!r}")
    return result
