"""Values of a model while it is imported: known arrays, symbolic shapes, and values that only run time knows.

A model computes shapes with ordinary operators (Shape, Gather, Concat, Reshape). Such a value is *known* here: a numpy
array, or an array of objects where some elements are symbolic dims. Known values cost no operation until something
needs them as a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mirlo.dialects.core.dims import SymbolicDim
from mirlo.dialects.core.dtypes import DType, dtype_of_numpy
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dtypes import onnx_type_name


@dataclass(eq=False)
class Value:
    """A tensor of the model, under its name there."""

    name: str
    type: TensorType
    ir: Any = None
    """The SSA value; None until a known value is needed as one."""
    known: np.ndarray | None = None
    """The elements, where import time knows them. Of type `object` where some are symbolic dims."""
    compute: Callable[[], Any] | None = field(default=None, repr=False)
    """Makes the SSA value of a symbolic known value: the operation that was folded."""
    region: int | None = None
    """How deep in regions the value was made; a constant is placed there, where all its users see it."""
    tensor: Any = field(default=None, repr=False)
    """The TensorProto that it comes from, if any."""

    @property
    def onnx_type(self) -> str:
        """As ONNX's schemas write it."""
        return f"tensor({onnx_type_name(self.type.dtype)})"

    def __str__(self) -> str:
        return str(self.type)

    @property
    def is_symbolic(self) -> bool:
        return self.known is not None and self.known.dtype == object

    @property
    def is_constant(self) -> bool:
        return self.known is not None and self.known.dtype != object


@dataclass(eq=False)
class ListValue:
    """A sequence of tensors. Import time knows how many there are, so that it never becomes a value of its own."""

    name: str
    dtype: DType
    items: tuple[Value, ...]
    region: int | None = None

    @property
    def onnx_type(self) -> str:
        return f"seq(tensor({onnx_type_name(self.dtype)}))"

    def __str__(self) -> str:
        return f"a sequence of {len(self.items)} of {self.dtype}"


AnyValue = Value | ListValue


def constant(name: str, array: np.ndarray) -> Value:
    """A value of these elements."""
    return Value(name, TensorType(array.shape, dtype_of_array(array)), known=array)


def symbolic(name: str, array: np.ndarray, dtype: DType, compute: Callable[[], Any]) -> Value:
    """A value whose elements are dims; plain where all of them are numbers."""
    if not any(isinstance(dim, SymbolicDim) for dim in array.flat):
        return Value(name, TensorType(array.shape, dtype), known=array.astype(dtype.to_numpy()))
    return Value(name, TensorType(array.shape, dtype), known=array, compute=compute)


def dtype_of_array(array: np.ndarray) -> DType:
    found = dtype_of_numpy(array.dtype)
    if found is None:
        raise ValueError(f"no element type for numpy's {array.dtype}")
    return found
