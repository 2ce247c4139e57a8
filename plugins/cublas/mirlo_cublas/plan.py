"""Products as data: the steps of a plan. Imports nothing of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("f32", "f16", "bf16", "f64")
BYTES, FLOATS8 = ("i8",), ("f8e4m3fn", "f8e5m2")
"""Factors of 8 bits: their products lie along the sums in both, and are of another type."""
RESULTS = {**{name: (name,) for name in DTYPES}, "f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "i8": ("i32",),
           **dict.fromkeys(FLOATS8, ("f32", "f16", "bf16"))}  # fmt: skip
"""Types of results, by that of the first factor."""


@dataclass(frozen=True)
class MatrixProduct:
    """d = activation(a · b + bias + added), of matrices in rows; values by number."""

    a: int
    b: int
    d: int
    m: int
    n: int
    k: int
    dtype: str
    bias: int | None = None
    activation: str = ""
    """`relu`, `gelu` or none."""
    batch: int = 1
    """Products one behind the other; those that share `b` are rows of one."""
    transposed_a: bool = False
    transposed_b: bool = False
    added: int | None = None
    """A matrix of the result's shape and type that is added."""
    shared_a: bool = False
    shared_b: bool = False
    """Whether all products of a batch have this factor."""
    dtype_b: str = ""
    """That of the second factor, where it is another one than that of the first."""
    result: str = ""
    """The type of the result, where it is another one."""
