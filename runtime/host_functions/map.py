"""Maps: Python dictionaries from strings or integers to scalars."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.host import host_function
from mirlo.runtime.kinds import STRING


@host_function("mirlo.map.zip")
def zip_labels(scores: Any, *, labels: Sequence[int | str]) -> tuple[dict[int | str, float], ...]:
    """Return a dictionary from labels to scores for each row; of equal labels the last one counts."""
    rows = scores.reshape(1, -1) if scores.ndim == 1 else scores
    if rows.shape[1] != len(labels):
        raise ValueError(f"there are {len(labels)} labels for {rows.shape[1]} scores")
    keys = sorted(labels)  # as ONNX Runtime's ordered map
    if keys != list(labels):
        rows = rows[:, sorted(range(len(labels)), key=lambda column: labels[column])]
    return tuple(map(dict, map(zip, repeat(keys), rows.tolist())))


@host_function("mirlo.map.vector")
def vector(values: dict[int | str, Any], *, vocabulary: Sequence[int | str], dtype: str) -> Any:
    """Return the values of some keys as a row; zero or the empty string where a key is missing."""
    missing: Any = "" if dtype == STRING else 0
    row = [values.get(key, missing) for key in vocabulary]
    return np.array([row], object if dtype == STRING else numpy_dtype(dtype))
