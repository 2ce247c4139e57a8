"""Products as data: the steps of a plan. Imports nothing of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("f32", "f16", "bf16", "f64")
BYTES, FLOATS8 = ("i8",), ("f8e4m3fn", "f8e5m2")
"""Factors of 8 bits; both must be contiguous along the summed dim."""
RESULTS = {**{name: (name,) for name in DTYPES}, "f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "i8": ("i32",),
           **dict.fromkeys(FLOATS8, ("f32", "f16", "bf16"))}  # fmt: skip
"""Result types by the type of the first factor."""


@dataclass(frozen=True)
class MatrixProduct:
    """d = activation(a · b + bias + added), of row-major matrices; values by number."""

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
    """Number of products in a batch; products that share `b` are merged to more rows."""
    transposed_a: bool = False
    transposed_b: bool = False
    added: int | None = None
    """A matrix of the result's shape and type that is added."""
    shared_a: bool = False
    shared_b: bool = False
    """Whether all products of a batch have this factor."""
    dtype_b: str = ""
    """The type of the second factor, if it differs from that of the first."""
    result: str = ""
    """The type of the result, if it differs."""
