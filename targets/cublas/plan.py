"""What is to be multiplied, as data: the steps of a plan. It imports nothing of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True)
class Product:
    """d = activation(a · b + bias), of matrices in rows; values by number."""

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
