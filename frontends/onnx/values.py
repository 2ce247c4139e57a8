"""Values of a model during import: tensors, and sequences, optional values and strings.

A model computes shapes with ordinary operators (Shape, Gather, Concat, Reshape). Such a tensor is *known* at import:
an array, or sizes, of which some are symbolic dims. Known tensors emit no operation until an operand is needed.

Types of ONNX other than numeric tensors are kinds of run-time values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NotImplementedType
from typing import Any, get_args

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import UNKNOWN, Dim, SymbolicDim
from mirlo.dialects.core.dims import parse as parse_dim
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.errors import OpMistake
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dtypes import onnx_dtype, onnx_type_name
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.graph import STRING_CODE, GraphDef, NodeDef, TypeDef, ValueDef
from mirlo.frontends.tensor import Tensor, TensorBuilder
from mirlo.runtime.callbacks import describe_value, name_of
from mirlo.runtime.kinds import KEYS, MAP, OPTIONAL, SEQUENCE, STRING, Kind, map_of, optional_of, sequence_of
from mirlo.runtime.records import dataclass


def tensor_kind(type_: TensorType) -> Kind:
    return Kind(type_.dtype.name, tuple(dim if isinstance(dim, int) else str(dim) for dim in type_.shape))


def tensor_type(kind: Kind) -> TensorType | None:
    """Return the type of a numeric tensor of known rank, else None."""
    if not kind.is_tensor or kind.shape is None:
        return None
    dims: tuple[Dim, ...] = tuple(dim if isinstance(dim, int) else parse_dim(dim) for dim in kind.shape)
    return TensorType(dims, DTYPES[kind.name])


def kind_of(declared: TypeDef, what: str, dim_of: Callable[[str | None], Dim] | None = None) -> Kind:
    """Return the kind of a declared type; `dim_of` maps the name of a dim that is not a number."""
    if declared.case == "sequence" and declared.element is not None:
        return sequence_of(kind_of(declared.element, what, dim_of))
    if declared.case == "optional" and declared.element is not None:
        return optional_of(kind_of(declared.element, what, dim_of))
    if declared.case == "map" and declared.element is not None:
        return _map_kind(declared.key, declared.element, what)
    if declared.case != "tensor":
        raise OnnxImportError(
            f"{what} is not a tensor but {declared.case or 'no type'}; tensors, sequences, maps and optional values "
            "are supported"
        )
    name = _element_name(declared.code, what)
    if declared.dims is None:
        return Kind(name)
    dims = [_dim(dim, dim_of) for dim in declared.dims]
    if UNKNOWN in dims and name != STRING:
        return Kind(name)
    return Kind(name, tuple(dim if isinstance(dim, int) else str(dim) for dim in dims))


def _dim(dim: int | str | None, dim_of: Callable[[str | None], Dim] | None) -> Dim:
    if isinstance(dim, int):
        if dim >= 0:
            return dim
        dim = None
    return dim_of(dim) if dim_of else UNKNOWN


def _map_kind(key_code: int, element: TypeDef, what: str) -> Kind:
    """Return the kind of a map: from strings or i64 to scalars."""
    key = _element_name(key_code, f"the key type of {what}")
    if key not in KEYS:
        raise OnnxImportError(f"{what} is a map from {key}; keys must be {' or '.join(KEYS)}")
    # Exporters write scalars as [1] as well.
    if element.case != "tensor" or any(isinstance(dim, int) and dim > 1 for dim in element.dims or ()):
        raise OnnxImportError(f"{what} is a map to other values than scalars, which is not supported")
    return map_of(key, _element_name(element.code, f"the value type of {what}"))


def _element_name(code: int, what: str) -> str:
    return STRING if code == STRING_CODE else onnx_dtype(code, what).dtype.name


def onnx_type_of(kind: Kind) -> str:
    """Format a kind as ONNX's schemas do: `seq(tensor(float))`."""
    if kind.name == MAP and kind.key is not None and kind.element is not None:
        key = STRING if kind.key == STRING else onnx_type_name(DTYPES[kind.key])
        return f"map({key},{onnx_type_of(kind.element)})"
    if kind.element is not None:
        return f"{'seq' if kind.name == SEQUENCE else OPTIONAL}({onnx_type_of(kind.element)})"
    return f"tensor({STRING if kind.name == STRING else onnx_type_name(DTYPES[kind.name])})"


def join(a: Kind, b: Kind) -> Kind | None:
    """Return the most specific kind of both values; None if they are incompatible."""
    if a == b:
        return a
    if OPTIONAL in (a.name, b.name) and a.name != b.name:  # a value is also an optional that is present
        inner, other = (a.element, b) if a.name == OPTIONAL else (b.element, a)
        joined = None if inner is None else join(inner, other)
        return None if joined is None else optional_of(joined)
    if a.name != b.name or a.name == MAP or (a.element is None) != (b.element is None):
        return None
    if a.element is not None and b.element is not None:
        element = join(a.element, b.element)
        return None if element is None else Kind(a.name, element=element)
    return Kind(a.name)


def without_shapes(kind: Kind) -> Kind:
    return Kind(kind.name, element=None if kind.element is None else without_shapes(kind.element), key=kind.key)


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
