"""Small constants for rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dense import dense_attribute
from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.constant import Constant

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


def dense(values: ArrayLike, element: str | DType) -> ir.Attribute:
    """Return a dense attribute of these values (nested lists or an array), for `relax.constant`."""
    import numpy as np

    kind = dtype(element)
    array = np.ascontiguousarray(np.asarray(values, dtype=kind.to_numpy()))
    return dense_attribute(array, TensorType(array.shape, kind))


def tensor_of(b: LegalizeBuilder, values: ArrayLike, element: str | DType) -> ir.Value:
    """Emit a `relax.constant` of these values, for use in prim functions."""
    attribute = dense(values, element)
    return b.emit(Constant, value=attribute, result_types=[attribute.type])
