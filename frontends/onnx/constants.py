"""Small constants in the IR."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType

INLINE_ELEMENTS = 16
"""Constants of at most this many elements stand in the IR; larger ones are parameters."""

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def dense(array: np.ndarray, found: TensorType) -> Any:
    """A dense elements attribute of this type."""
    plain = np.array(array, order="C", copy=True)
    if array.dtype != np.bool_:  # the bindings know few numpy types, but take the bits of any
        plain = plain.view(_BITS[array.dtype.itemsize])
    return ir.DenseElementsAttr.get(plain, type=found.to_mlir())
