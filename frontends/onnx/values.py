"""Values of a model during import: tensors, and sequences, optional values and strings.

A model computes shapes with ordinary operators (Shape, Gather, Concat, Reshape). Such a tensor is *known* at import:
an array, or sizes, of which some are symbolic dims. Known tensors emit no operation until an operand is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NotImplementedType
from typing import Any, get_args

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.errors import OpMistake
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dtypes import onnx_type_name
from mirlo.frontends.onnx.graph import GraphDef, NodeDef, ValueDef
from mirlo.frontends.onnx.kinds import onnx_type_of
from mirlo.frontends.tensor import Tensor, TensorBuilder
from mirlo.runtime.callbacks import describe_value, name_of
from mirlo.runtime.kinds import STRING, Kind, optional_of, sequence_of
from mirlo.runtime.records import dataclass


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

    def __str__(self) -> str:
        return f"{self.kind} with{'out' if self.value is None else ''} an element"


@dataclass(eq=False)
class ObjectValue:
    """A run-time object: a string tensor, a sequence, an optional value, a tensor of unknown rank."""

    name: str
    kind: Kind
    value: ir.Value | None = None
    """The SSA value; None until known strings need one."""
    strings: np.ndarray | None = None
    """The elements of a string tensor if they are known, or the table from which `places` selects them."""
    places: Tensor | None = None
    """The positions of the elements in the table; None if all are the elements, in order."""
    region: int | None = None

    @property
    def is_constant(self) -> bool:
        """Return whether all elements of a string tensor are known."""
        return self.strings is not None and self.places is None

    def __str__(self) -> str:
        return str(self.kind)


def onnx_type(value: AnyValue) -> str:
    """Return the type of a value as ONNX's schemas write it."""
    return f"tensor({onnx_type_name(value.dtype)})" if isinstance(value, Tensor) else onnx_type_of(value.kind)


def strings(name: str, array: np.ndarray) -> ObjectValue:
    """Return a constant string tensor."""
    return ObjectValue(name, Kind(STRING, array.shape), strings=array)


def selected_strings(table: np.ndarray, places: Tensor) -> ObjectValue:
    """Return the strings at positions in a table, which compiled code computes."""
    return ObjectValue("", Kind(STRING, places.kind.shape), strings=table, places=places)


AnyValue = Tensor | ListValue | OptionalValue | ObjectValue
Output = AnyValue | ir.Value | None
"""An output of a node as its converter makes it, such as by `make` of its operator; None for one that is left out."""
Converted = Output | Sequence[Output] | NotImplementedType
"""What a converter returns: the outputs of the node, or NotImplemented."""
_OUTPUTS = (*get_args(AnyValue), ir.Value, type(None))


def outputs_of(converter: object, results: object) -> Sequence[Output]:
    """Return what a converter returned as outputs; raise `OpMistake` if it is nothing or something else."""
    outputs: Sequence[Any] = results if isinstance(results, (tuple, list)) else (results,)
    if results is None or not outputs or not all(isinstance(each, _OUTPUTS) for each in outputs):
        raise OpMistake(
            f"its converter {name_of(converter)} returned {describe_value(results)}: expected the value of its output, "
            "a tuple of one for each output, or NotImplemented"
        )
    return outputs


DECLINED: Converted = NotImplemented
"""What a converter returns that leaves the node to the next one, or to the function body of its operator."""


@dataclass(frozen=True)
class LoopIteration:
    """One iteration of a loop."""

    make: Callable[[Tensor, Tensor, list[AnyValue]], tuple[AnyValue, list[AnyValue], list[AnyValue]]]
    """Map the iteration number, whether it is wanted, and the carried values to whether to continue, the next
    carried values, and the scan outputs."""
    carried: Sequence[ValueDef] = ()
    """Declared types of the carried values, if any."""
    collected: Sequence[ValueDef] = ()
    """Declared types of the scan outputs, if any."""
    backwards: Sequence[bool] = ()
    """For each scan output, whether its rows are in reverse order of iterations."""
    graph: GraphDef | None = None
    """The body of ONNX's Loop, which may change the sizes of carried tensors; None for other loops."""


@dataclass(frozen=True)
class FoldedDims:
    """The result of a folder for dims whose element type is not that of its operands."""

    array: np.ndarray
    dtype: DType


def symbolic(
    builder: TensorBuilder, array: np.ndarray, dtype: DType, compute: Callable[[], Tensor], name: str
) -> Tensor:
    """Return a tensor whose elements are dims; a constant if all are numbers."""
    kind = TensorType(array.shape, dtype)
    if not any(isinstance(dim, SymbolicDim) for dim in array.flat):
        return Tensor(builder, kind, array=array.astype(dtype.to_numpy()), name=name)
    return Tensor(builder, kind, sizes=tuple(array.flat), compute=compute, name=name)


def as_dim(element: Dim | np.generic) -> Dim:
    """Return an element of a known value as a dim."""
    return element if isinstance(element, SymbolicDim) else int(element)


def is_exact(number: float) -> bool:
    """Return whether an f64 represents this number exactly, as Float attributes require."""
    return isinstance(number, (bool, float)) or int(float(number)) == number


class Scope:
    """The values of one graph or function body, by name."""

    def __init__(
        self, opsets: Mapping[str, int], parent: Scope | None = None, prefix: str = "", depth: int = 0
    ) -> None:
        self.opsets = opsets
        self.parent = parent
        self.prefix = prefix
        """Prefix of its node names."""
        self.depth = depth
        """Nesting depth in functions."""
        self.declared: dict[str, tuple[int, ...]] = {}
        """Declared static shapes of values."""
        self.nodes: Sequence[NodeDef] = ()
        """The nodes of the graph or body."""
        self.values: dict[str, AnyValue | None] = {}
        """None stands for a value that could not be made; dependent nodes are skipped."""

    def define(self, value: AnyValue) -> None:
        self.values[value.name] = value

    def find(self, name: str) -> AnyValue | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise KeyError(name)

    def outer_names(self) -> set[str]:
        names: set[str] = set()
        scope = self.parent
        while scope is not None:
            names |= scope.values.keys()
            scope = scope.parent
        return names

    def within(self, prefix: str) -> Scope:
        """Return a scope for a subgraph of a node."""
        return Scope(self.opsets, self, prefix, self.depth)
