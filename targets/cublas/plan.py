"""What is to be multiplied, as data: compiler and loader know it. It imports nothing of the compiler."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from mirlo.runtime.errors import ArtifactError

VERSION = 1
DTYPES = ("f32", "f16", "bf16", "f64")
ACTIVATIONS = ("", "relu", "gelu")


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
    batch: int = 1
    """Products one behind the other; `m` has those that share `b`."""
    transposed_a: bool = False
    transposed_b: bool = False


@dataclass(frozen=True)
class Function:
    """A region: its inputs are the values 0, 1, ..., its outputs those that follow."""

    name: str
    inputs: int
    outputs: int
    constants: dict[str, str]
    """By value, as text, the name of the parameter that it is."""
    sizes: dict[str, int]
    """Bytes of the values that are neither given nor constants."""
    products: tuple[Product, ...]


def write(functions: list[Function]) -> bytes:
    """A plan as bytes."""
    return json.dumps({"version": VERSION, "functions": [asdict(function) for function in functions]}).encode()


def read(data: bytes) -> list[Function]:
    """The functions of a plan."""
    try:
        found: dict[str, Any] = json.loads(data)
        if found["version"] != VERSION:
            raise ArtifactError(f"a plan of version {found['version']} is not known: install the package that made it")
        return [
            Function(**{**row, "products": tuple(Product(**product) for product in row["products"])})
            for row in found["functions"]
        ]
    except (ValueError, KeyError, TypeError) as problem:
        raise ArtifactError(f"the plan for cuBLAS is damaged: {problem}") from None
