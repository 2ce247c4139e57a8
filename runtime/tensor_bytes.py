"""Tensors as programs in C read and write them: dims, of 64 bits, then data of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import ArtifactError


def tensor_bytes(arrays: Iterable[np.ndarray]) -> bytes:
    """Return dims and data of arrays."""
    parts = []
    for array in arrays:
        parts += [np.array(array.shape, np.int64).tobytes(), np.asarray(array, order="C").tobytes()]
    return b"".join(parts)


def read_tensors(specs: Sequence[TensorSpec], content: bytes, at: int = 0) -> tuple[dict[str, np.ndarray], int]:
    """Return tensors of these types from a position on, by name, and the position after them."""
    tensors = {}
    for spec in specs:
        rank, kind = len(spec.shape), np.dtype(numpy_dtype(spec.dtype))
        if rank * 8 > len(content) - at:
            raise ArtifactError(f"'{spec.name}': the dims are cut off")
        shape = [int(dim) for dim in np.frombuffer(content, np.int64, rank, at)]
        at += rank * 8
        size = math.prod(shape)
        if min(shape, default=0) < 0 or size * kind.itemsize > len(content) - at:
            raise ArtifactError(f"'{spec.name}': the data of {shape} are cut off")
        if any(isinstance(dim, int) and dim != is_dim for dim, is_dim in zip(spec.shape, shape, strict=True)):
            raise ArtifactError(f"'{spec.name}': expected {spec}, found {shape}")
        tensors[spec.name] = np.frombuffer(content, kind, size, at).reshape(shape)
        at += size * kind.itemsize
    return tensors, at
