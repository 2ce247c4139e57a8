"""Samples of a float format."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dtypes import dtype
from mirlo.passes.lower.formats import FORMATS
from mirlo.tools.conformance.errors import Array
from mirlo.tools.conformance.meanings import Meaning

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 2.5, 3.0, 10.0, 100.0, np.inf, -np.inf, np.nan)


def special_values(kind: str) -> Array:
    """Return zeros, infinities, NaN, the limits of normal and subnormal numbers, small integers."""
    form = FORMATS[kind]
    ends = [form.largest, form.smallest_normal, form.smallest_normal * 2.0**-form.fraction]
    ends.append(ends[1] - ends[2])
    numbers = [*_SPECIAL, *ends, *(-x for x in ends)]
    return np.array(numbers, np.float64).astype(dtype(kind).to_numpy())


def sample(kind: str, count: int, meaning: Meaning, seed: int = 0) -> Array:
    """Draw `count` values: half random bit patterns, half from the function's interesting range.

    All patterns of a 16-bit format, where `count` allows.
    """
    rng = np.random.default_rng(seed)
    form, numpy_type = FORMATS[kind], dtype(kind).to_numpy()
    unsigned = np.dtype(f"u{form.bits // 8}")
    if form.bits == 16 and count == 1 << 16:
        patterns = np.arange(count, dtype=unsigned)
        return (patterns if seed == 0 else rng.permutation(patterns)).view(numpy_type)
    step = (1 << form.bits) // count
    patterns = np.arange(count, dtype=np.uint64) * np.uint64(step) + rng.integers(0, step, count, dtype=np.uint64)
    values = patterns.astype(unsigned).view(numpy_type)
    share = count // 2 // len(meaning.near)
    for i, (low, high) in enumerate(meaning.near):
        values[2 * i * share : 2 * (i + 1) * share : 2] = rng.uniform(low, high, share).astype(numpy_type)
    special = special_values(kind)
    if seed == 0:
        values[-len(special) :] = special
        return np.asarray(values)
    # Each special value of one operand meets each of the others.
    rng.shuffle(values)
    grid = np.repeat(special, len(special))
    values[: len(grid)] = grid
    return np.asarray(values)


def operands(kind: str, arity: int, count: int, meaning: Meaning) -> list[Array]:
    if arity == 1:
        return [sample(kind, count, meaning)]
    first = sample(kind, count, meaning, seed=1)
    second = sample(kind, count, meaning, seed=2)
    special = special_values(kind)
    second[: len(special) ** 2] = np.tile(special, len(special))
    return [first, second]
