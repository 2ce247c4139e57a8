"""The arguments on which intrinsics are tried."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.lower.formats import FORMATS
from mirlo.tools.conformance.meanings import FLOAT
from mirlo.tools.conformance.samples import operands, sample

SAMPLES = 4096
"""Arguments on which an intrinsic is tried."""
INT_KINDS = ("i8", "i32", "i64")


def intrinsic_kinds(name: str) -> tuple[str, ...]:
    """Return the element types on which an intrinsic is tried."""
    return INT_KINDS if INTRINSICS[name].operands == "int" else tuple(FORMATS)


def intrinsic_arguments(name: str, kind: str, count: int = SAMPLES) -> list[np.ndarray]:
    """Return the arguments of an intrinsic, one array for each operand."""
    row = INTRINSICS[name]
    return _integers(kind, row.arity, name, count) if row.operands == "int" else _floats(name, kind, count)


def _floats(name: str, kind: str, count: int) -> list[np.ndarray]:
    near = FLOAT.get(name, FLOAT["atan"])
    if name == "ldexp":
        return [sample(kind, count, near), np.random.default_rng(4).integers(-60, 60, count).astype(np.int32)]
    arity = INTRINSICS[name].arity
    values = operands(kind, min(arity, 2), count, near)
    if arity < 3:
        return values
    added = sample(kind, count, near, seed=5)
    if name == "fmuladd":  # of the product's sign: two roundings differ from one by a unit unless they cancel
        added = np.copysign(added, values[0] * values[1])
    return [*values, added]


def _integers(kind: str, arity: int, name: str, count: int) -> list[np.ndarray]:
    element = dtype(kind).to_numpy()
    info, random = np.iinfo(element), np.random.default_rng(3)
    columns = [random.integers(info.min, info.max, count, dtype=element, endpoint=True) for _ in range(arity)]
    if name in ("shl", "shru", "shrs", "fixed_mul"):
        columns[-1] = random.integers(0, min(16 * element.itemsize - 1, info.max), count).astype(element)
    return columns
