"""Arrays from seeds, the same wherever they are made: inputs that are too large to carry, and weights of models."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype


def seeded(seed: int, dtype: str, shape: Sequence[int], scale: float = 0.25, low: int = 0, high: int = 0) -> np.ndarray:
    """Return floats between -scale and scale, or integers from low to high - 1 or of the whole range.

    Made of the bits of PCG64, which no version of numpy changes, by arithmetic that is exact.
    """
    count = math.prod(shape)
    words = np.random.PCG64(seed).random_raw((count + 1) // 2).view(np.uint32)[:count]
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return (words & 1).astype(kind).reshape(shape)
    if ELEMENT_TYPES[dtype].name.startswith(("i", "u")):
        if high > low:
            return (low + words.astype(np.int64) % (high - low)).astype(kind).reshape(shape)
        return words.astype(kind).reshape(shape)
    steps = (words >> np.uint32(8)).astype(np.float32)
    steps -= np.float32(1 << 23)
    steps *= np.float32(scale / (1 << 23))
    return steps.astype(kind).reshape(shape)


def weight(row: Mapping[str, Any]) -> np.ndarray:
    """Return a parameter of a model: an initializer of `benchmarks.models`, its axes in another order."""
    mean, deviation = row["seeded"]
    digest = hashlib.sha256(row["initializer"].encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    values = generator.standard_normal(tuple(row["from"]), dtype=np.float32)
    values *= np.float32(deviation)
    values += np.float32(mean)
    return np.ascontiguousarray(values.transpose(row["axes"])).reshape(row["shape"]).astype(numpy_dtype(row["dtype"]))
