"""Constants of the graph as numpy arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dense import array_of, dense_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.constant import Constant

INLINE_ELEMENTS = 16
"""Constants of at most this many elements stand in the IR; larger ones are parameters."""


def is_constant(value: Any) -> bool:
    """Whether a value is a `relax.constant`."""
    return isinstance(value, ir.OpResult) and value.owner.name == "relax.constant"


def constant_value(value: Any, session: Any) -> np.ndarray | None:
    """The array of a value that is a constant, else None."""
    if not is_constant(value):
        return None
    op = value.owner.opview
    if op.param is not None:
        return session.params.get(op.param) if op.param in session.params else None
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    return array_of(op.value, kind)


def make_constant(array: np.ndarray, kind: TensorType, session: Any, name: str) -> Any:
    """A constant at the insertion point: in the IR if it is small, else a parameter of (about) this name."""
    array = np.ascontiguousarray(array).reshape(kind.static_shape)
    if array.size <= INLINE_ELEMENTS:
        return Constant.make(value=dense_of(array, kind), result_types=[kind])
    return Constant.make(param=session.params.add_unique(name, array), result_types=[kind])


def constant_name(value: Any) -> str:
    """The name of the parameter that a constant is, for naming what is computed from it."""
    op = value.owner.opview
    return op.param if op.param is not None else "constant"
