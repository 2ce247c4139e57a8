"""The graph of a model as it is imported: immutable, typed, and without protobuf behind it.

`reading.py` makes it from the messages of a file and checks it on the way; the converters read it. Objects are compared
by identity, so that they can be keys of caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from mirlo.runtime.records import dataclass

# AttributeProto.AttributeType
UNDEFINED, FLOAT, INT, STRING, TENSOR, GRAPH = 0, 1, 2, 3, 4, 5
FLOATS, INTS, STRINGS, TENSORS, GRAPHS = 6, 7, 8, 9, 10
SPARSE_TENSOR, SPARSE_TENSORS, TYPE, TYPES = 11, 12, 13, 14

STRING_CODE = 8
"""TensorProto.DataType: STRING."""
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


@dataclass(frozen=True, slots=True)
class TypeDef:
    """The declared type of a value."""

    case: str = ""
    """`tensor`, `sequence`, `optional`, `map`, `sparse tensor`, `opaque`; empty if nothing is declared."""
    code: int = 0
    """The element type of a tensor, TensorProto.DataType."""
    dims: tuple[int | str | None, ...] | None = None
    """The dims of a tensor: numbers, names, None for dims without either; None for an unknown rank."""
    key: int = 0
    """The type of the keys of a map, TensorProto.DataType."""
    element: TypeDef | None = None
    """The type of the elements of a sequence, an optional, or a map."""

    @property
    def static_dims(self) -> tuple[int, ...] | None:
        """Return the dims of a tensor if all of them are numbers."""
        if self.case != "tensor" or self.dims is None:
            return None
        dims = tuple(dim for dim in self.dims if isinstance(dim, int))
        return dims if len(dims) == len(self.dims) else None


@dataclass(frozen=True, slots=True)
class ValueDef:
    """An input, output or other value, and its declared type."""

    name: str
    type: TypeDef


@dataclass(frozen=True, slots=True, eq=False)
class TensorDef:
    """A tensor of the file: where its elements are."""

    name: str
    code: int
    """TensorProto.DataType."""
    dims: tuple[int, ...]
    raw: memoryview | bytes | None = None
    """The bytes of its elements: a view of the file, or a part of the message; None if they are elsewhere."""
    numbers: np.ndarray | None = None
    """The elements of the typed field that belongs to its type."""
    strings: tuple[bytes, ...] = ()
    external: Mapping[str, str] | None = None
    """The entries that say where its external data is."""
    is_segmented: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AttributeDef:
    """An attribute of a node, or of a function's defaults."""

    name: str
    kind: int
    """AttributeProto.AttributeType."""
    value: AttributeValue
    """None for kinds that no operator reads: sparse tensors, lists of types."""
    reference: str = ""
    """In the body of a function, the name of the function's attribute that stands here."""

    @property
    def graphs(self) -> tuple[GraphDef, ...]:
        if isinstance(self.value, GraphDef):
            return (self.value,)
        return tuple(each for each in self.value if isinstance(each, GraphDef)) if self.kind == GRAPHS else ()  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True, eq=False)
class NodeDef:
    """A node: an operator applied to values by name."""

    name: str
    """Its name; without one, its operator and its place in the graph."""
    operator: str
    domain: str
    """The domain of the operator; the default one is ''."""
    overload: str
    inputs: tuple[str, ...]
    """Names of values; '' for an input that is left out."""
    outputs: tuple[str, ...]
    attributes: tuple[AttributeDef, ...]
    index: int
    """Its place in the graph or function."""
    problem: str = ""
    """What the schema of its operator does not allow; refused if a result of the node is needed."""

    @property
    def graphs(self) -> tuple[GraphDef, ...]:
        """Return the subgraphs of the node."""
        return tuple(graph for attribute in self.attributes for graph in attribute.graphs)


@dataclass(frozen=True, eq=False)
class GraphDef:
    """A graph: the model's, or a branch or body of a node."""

    name: str
    nodes: tuple[NodeDef, ...]
    inputs: tuple[ValueDef, ...]
    outputs: tuple[ValueDef, ...]
    values: tuple[ValueDef, ...] = ()
    """Declared types of other values."""
    initializers: tuple[TensorDef, ...] = ()
    has_sparse_initializers: bool = False

    def static_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of values that the graph declares as numbers."""
        declared = (*self.values, *self.outputs)
        return {value.name: dims for value in declared if (dims := value.type.static_dims) is not None}


AttributeValue: TypeAlias = (
    "float | int | bytes | TensorDef | GraphDef | TypeDef | tuple[float, ...] | tuple[bytes, ...] "
    "| tuple[TensorDef, ...] | tuple[GraphDef, ...] | None"
)


@dataclass(frozen=True, eq=False)
class FunctionDef:
    """An operator that is defined by nodes."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeDef, ...]
    attributes: frozenset[str] = frozenset()
    """The attributes that a call may have."""
    defaults: tuple[AttributeDef, ...] = ()
    """The attributes that have a default value, with it."""
    opsets: Mapping[str, int] = field(default_factory=dict)
    """The versions of the operator sets of its nodes, by domain."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.domain, self.name, self.overload


@dataclass(frozen=True, eq=False)
class ModelDef:
    """A model: its graph, its functions, and the versions of the operators in them."""

    graph: GraphDef
    opsets: Mapping[str, int]
    """The version of each imported operator set by domain; the default domain is ''."""
    functions: Mapping[tuple[str, str, str], FunctionDef] = field(default_factory=dict)
    """The model's own functions by domain, operator and overload."""
    ir_version: int = 0
    producer: str = ""
    """The program that wrote the model, with its version."""

    @cached_property
    def parameters(self) -> Mapping[str, TensorDef]:
        """Return the initializers and Constants of the main graph, which become parameters under their own names."""
        return dict(self._named_tensors())

    def _named_tensors(self) -> Iterator[tuple[str, TensorDef]]:
        for tensor in self.graph.initializers:
            yield tensor.name, tensor
        for node in self.graph.nodes:
            if (node.domain, node.operator) == ("", "Constant") and len(node.outputs) == 1:
                for attribute in node.attributes:
                    if attribute.name == "value" and isinstance(attribute.value, TensorDef):
                        yield node.outputs[0], attribute.value


def attribute_of(name: str, value: object) -> AttributeDef:
    """Return an attribute whose kind is that of a Python value."""
    if isinstance(value, str):
        return AttributeDef(name, STRING, value.encode())
    if isinstance(value, float):
        return AttributeDef(name, FLOAT, value)
    if isinstance(value, int):
        return AttributeDef(name, INT, int(value))
    if isinstance(value, TensorDef):
        return AttributeDef(name, TENSOR, value)
    if isinstance(value, Sequence) and value:
        if all(isinstance(each, str) for each in value):
            return AttributeDef(name, STRINGS, tuple(each.encode() for each in value))
        if all(isinstance(each, int) for each in value):
            return AttributeDef(name, INTS, tuple(int(each) for each in value))
        if all(isinstance(each, (int, float)) for each in value):
            return AttributeDef(name, FLOATS, tuple(float(each) for each in value))
    raise TypeError(f"attribute '{name}' must be numbers, strings or a tensor, found {value!r}")


def tensor_of(array: np.ndarray, code: int, name: str = "") -> TensorDef:
    """Return a tensor with the elements of an array, of 8 bits or more each."""
    plain = np.ascontiguousarray(array)
    return TensorDef(name, code, array.shape, raw=plain.tobytes())


def node_of(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    domain: str = "",
    index: int = 0,
    **attributes: object,
) -> NodeDef:
    """Return a node with these attributes."""
    attribute_defs = tuple(attribute_of(name, value) for name, value in attributes.items())
    return NodeDef(f"{operator}_{index}", operator, domain, "", tuple(inputs), tuple(outputs), attribute_defs, index)


KIND_NAMES = {
    FLOAT: "a number", INT: "an integer", STRING: "a string", TENSOR: "a tensor", GRAPH: "a graph",
    FLOATS: "numbers", INTS: "integers", STRINGS: "strings", TENSORS: "tensors", GRAPHS: "graphs",
    SPARSE_TENSOR: "a sparse tensor", SPARSE_TENSORS: "sparse tensors", TYPE: "a type", TYPES: "types",
}  # fmt: skip
"""The kinds of attributes in messages."""


def wrong_kind(attribute: AttributeDef, kind: int) -> str:
    """Return the error for an attribute of another kind."""
    return f"attribute '{attribute.name}' must be {KIND_NAMES[kind]}, got {KIND_NAMES.get(attribute.kind, 'nothing')}"
