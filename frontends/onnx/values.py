"""Values of a model during import: known arrays, symbolic shapes, and run-time values.

A model computes shapes with ordinary operators (Shape, Gather, Concat, Reshape). Such a value is *known* at import:
a numpy array, or an object array in which some elements are symbolic dims. Known values emit no operation until a
tensor is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import NotImplementedType

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType, dtype_of_numpy
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dtypes import onnx_type_name
from mirlo.frontends.onnx.graph import TensorDef
from mirlo.frontends.onnx.kinds import onnx_type_of, tensor_kind
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import STRING, Kind, optional_of, sequence_of

INLINE_ELEMENTS = 16
"""Most elements of a constant in the IR; larger ones are parameters."""


SsaValue = ir.Value
"""`ir.Value` under a name that the fields `ir` do not shadow."""


@dataclass(eq=False)
class TensorValue:
    """A tensor of the model, under its name there."""

    name: str
    type: TensorType
    ir: SsaValue | None = None
    """The SSA value; None until a known value needs one."""
    known: np.ndarray | None = None
    """The elements, if known at import; of type `object` if some are symbolic dims."""
    partial: tuple[Dim | None, ...] | None = None
    """The elements of a list of integers, of which only some are known at import; None for the others."""
    fractions: np.ndarray | None = None
    """The elements of a float tensor that are fractions of dims, as `fractions.DimFraction`."""
    packed: np.ndarray | None = None
    """The bytes of a constant of 2 or 4 bits an element, which is not known at import."""
    compute: Callable[[], Tensor | TensorValue] | None = field(default=None, repr=False)
    """Makes the SSA value of a symbolic known value: the operation that was folded."""
    region: int | None = None
    """Region depth of the definition; a constant is placed there, where all its users see it."""
    tensor: TensorDef | None = field(default=None, repr=False)
    """The tensor of the file that it comes from, if any."""

    @property
    def onnx_type(self) -> str:
        """Return the type as ONNX's schemas write it."""
        return f"tensor({onnx_type_name(self.type.dtype)})"

    def __str__(self) -> str:
        return str(self.type)

    @property
    def kind(self) -> Kind:
        return tensor_kind(self.type)

    @property
    def is_symbolic(self) -> bool:
        return self.known is not None and self.known.dtype == object

    @property
    def is_constant(self) -> bool:
        return self.known is not None and self.known.dtype != object


@dataclass(eq=False)
class ListValue:
    """A sequence with a number of elements known at import."""

    name: str
    element: Kind
    items: tuple[AnyValue, ...]
    region: int | None = None

    @property
    def kind(self) -> Kind:
        return sequence_of(self.element)

    @property
    def onnx_type(self) -> str:
        return onnx_type_of(self.kind)

    def __str__(self) -> str:
        return f"a sequence of {len(self.items)} of {self.element}"


@dataclass(eq=False)
class OptionalValue:
    """An optional value whose presence is known at import."""

    name: str
    element: Kind
    value: AnyValue | None
    region: int | None = None

    @property
    def kind(self) -> Kind:
        return optional_of(self.element)

    @property
    def onnx_type(self) -> str:
        return onnx_type_of(self.kind)

    def __str__(self) -> str:
        return f"{self.kind} with{'out' if self.value is None else ''} an element"


@dataclass(eq=False)
class ObjectValue:
    """A run-time object: a string tensor, a sequence, an optional value, a tensor of unknown rank."""

    name: str
    kind: Kind
    ir: SsaValue | None = None
    """The SSA value; None until known strings need one."""
    strings: np.ndarray | None = None
    """The elements of a constant string tensor."""
    region: int | None = None

    @property
    def onnx_type(self) -> str:
        return onnx_type_of(self.kind)

    def __str__(self) -> str:
        return str(self.kind)


def strings(name: str, array: np.ndarray) -> ObjectValue:
    """Return a constant string tensor."""
    return ObjectValue(name, Kind(STRING, array.shape), strings=array)


AnyValue = TensorValue | ListValue | OptionalValue | ObjectValue
Output = AnyValue | Tensor | ir.Value | None
"""An output of a node as its converter makes it; None for an optional one that is left out."""
Converted = Output | Sequence[Output] | NotImplementedType
"""What a converter returns: the outputs of the node, or NotImplemented."""


DECLINED: Converted = NotImplemented
"""What a converter returns that leaves the node to the next one, or to the function body of its operator."""


@dataclass(frozen=True)
class FoldedDims:
    """What a folder returns for dims of another element type than that of its operands."""

    array: np.ndarray
    dtype: DType


def constant(name: str, array: np.ndarray) -> TensorValue:
    """Return a value with these elements."""
    return TensorValue(name, TensorType(array.shape, dtype_of_array(array)), known=array)


def symbolic(name: str, array: np.ndarray, dtype: DType, compute: Callable[[], Tensor | TensorValue]) -> TensorValue:
    """Return a value whose elements are dims; a plain one if all are numbers."""
    if not any(isinstance(dim, SymbolicDim) for dim in array.flat):
        return TensorValue(name, TensorType(array.shape, dtype), known=array.astype(dtype.to_numpy()))
    return TensorValue(name, TensorType(array.shape, dtype), known=array, compute=compute)


def as_dim(element: Dim | np.generic) -> Dim:
    """Return an element of a known value as a dim."""
    return element if isinstance(element, SymbolicDim) else int(element)


def dtype_of_array(array: np.ndarray) -> DType:
    result = dtype_of_numpy(array.dtype)
    if result is None:
        raise ValueError(f"no element type for numpy's {array.dtype}")
    return result
