"""A converter's view of a node: inputs as values, constants or dims; attributes; and emission of operations."""

from __future__ import annotations

import builtins
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import DIALECT
from mirlo.frontends.onnx import graph as G
from mirlo.frontends.onnx.errors import NodeError, nearest
from mirlo.frontends.onnx.functions import Expansion
from mirlo.frontends.onnx.graph import KIND_NAMES, AttributeDef, GraphDef, TensorDef, TypeDef, ValueDef, wrong_kind
from mirlo.frontends.onnx.objects import ObjectBuilder, call_host
from mirlo.frontends.onnx.signature import Signature
from mirlo.frontends.onnx.values import (
    AnyValue,
    Converted,
    ListValue,
    ObjectValue,
    OptionalValue,
    Output,
    as_dim,
    constant,
)
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import SEQUENCE, STRING, Kind
from mirlo.runtime.names import terminal

_MISSING: Any = object()

D = TypeVar("D")
Plain: TypeAlias = "float | str | list[int] | list[float] | list[str]"
Name = str
"""`str` under a name that the methods of `Attributes` do not shadow."""


def _rounded(value: builtins.float) -> builtins.float:
    return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]


class Attributes:
    """The attributes of one node."""

    def __init__(self, attributes: Iterable[AttributeDef]) -> None:
        self.by_name = {attribute.name: attribute for attribute in attributes}
        self.read: set[Name] = set()
        """The attributes that were read, or that do not affect the result."""

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def names(self) -> list[Name]:
        return list(self.by_name)

    def int(self, name: Name, default: D = _MISSING) -> builtins.int | D:
        result: builtins.int | D = self._get(name, G.INT, default)
        return result

    def bool(self, name: Name, default: builtins.int = _MISSING) -> builtins.bool:
        value = self._get(name, G.INT, default)
        if value not in (0, 1):
            raise NodeError(f"attribute '{name}' must be 0 or 1, got {value}")
        return bool(value)

    def float(self, name: Name, default: D = _MISSING) -> builtins.float | D:
        """Return a float. ONNX's floats are f32, defaults included: 0.2 is 0.200000003."""
        value: builtins.float | D = self._get(name, G.FLOAT, default)
        return _rounded(value) if isinstance(value, (int, float)) else value

    def str(self, name: Name, default: D = _MISSING) -> Name | D:
        value = self._get(name, G.STRING, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def ints(self, name: Name, default: D = _MISSING) -> list[builtins.int] | D:
        value = self._get(name, G.INTS, default)
        return value if value is default else list(value)

    def floats(self, name: Name, default: D = _MISSING) -> list[builtins.float] | D:
        value = self._get(name, G.FLOATS, default)
        return value if value is default else list(value)

    def strs(self, name: Name, default: D = _MISSING) -> list[Name] | D:
        value = self._get(name, G.STRINGS, default)
        return value if value is default else [item.decode("utf-8", "replace") for item in value]

    def tensor(self, name: Name, default: D = _MISSING) -> TensorDef | D:
        result: TensorDef | D = self._get(name, G.TENSOR, default)
        return result

    def graph(self, name: Name, default: D = _MISSING) -> GraphDef | D:
        result: GraphDef | D = self._get(name, G.GRAPH, default)
        return result

    def type(self, name: Name, default: D = _MISSING) -> TypeDef | D:
        result: TypeDef | D = self._get(name, G.TYPE, default)
        return result

    def choice(self, name: Name, default: Name | None, choices: tuple[Name, ...]) -> Name:
        """Return a string that must be one of these choices."""
        value = self.str(name, default)
        if value is None or value not in choices:
            allowed = ", ".join(f"'{choice}'" for choice in choices)
            raise NodeError(f"attribute '{name}' must be one of {allowed}, got '{terminal(str(value))}'")
        return value

    def plain(self, name: Name) -> Plain:
        """Return a number, a string, or a list of them, whichever the attribute is."""
        kind = self.by_name[name].kind
        readers = {
            G.FLOAT: self.float, G.INT: self.int, G.STRING: self.str, G.FLOATS: self.floats, G.INTS: self.ints,
            G.STRINGS: self.strs,
        }  # fmt: skip
        if kind not in readers:
            raise NodeError(f"attribute '{name}' is {KIND_NAMES.get(kind, 'nothing')}: expected numbers or strings")
        return readers[kind](name)

    def ignore(self, *names: Name) -> None:
        """Declare that these attributes do not affect the result."""
        self.read.update(names)

    def _get(self, name: Name, kind: builtins.int, default: object) -> Any:
        self.read.add(name)
        attribute = self.by_name.get(name)
        if attribute is None:
            if default is _MISSING:
                raise NodeError(f"attribute '{name}' is missing")
            return default
        if attribute.kind != kind:
            raise NodeError(wrong_kind(attribute, kind))
        return attribute.value


class NodeTrait(Enum):
    """A property of an operator of ONNX that holds in all of its versions."""

    SAME_SHAPE = "same-shape"
    """The first output has the shape of the first input. Derived for elementwise operators of one operand whose class
    says what ONNX calls them."""
    SAME_VALUES = "same-values"
    """The first output has the numbers of the first input, as far as its element type holds them."""
    MOVES = "moves"
    """The outputs consist of elements of the inputs, whatever these are: strings are moved as indices."""
    MEASURES = "measures"
    """The types of the inputs determine the outputs; elements are not read."""


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


OperatorClass = type[DialectOp]
"""`type[DialectOp]` under a name that the method `Node.type` does not shadow."""


class NodeImporter(ObjectBuilder, ABC):
    """The interface of an import that nodes use."""

    expansion: Expansion
    """What was copied so far of functions and loops."""
    bound: dict[str, None]
    """Symbols that are bound to run-time values, in order of creation."""
    rings: Mapping[str, int]
    """The inputs of the model that are rings of rows, with the tokens of their windows."""

    @property
    @abstractmethod
    def graph_of_model(self) -> GraphDef:
        """Return the graph of the model."""

    @property
    @abstractmethod
    def name_of_model(self) -> str:
        """Return what errors call the model."""

    @abstractmethod
    def array(self, tensor: TensorDef) -> np.ndarray:
        """Return the elements of a tensor of the file."""

    @abstractmethod
    def strings(self, tensor: TensorDef) -> np.ndarray:
        """Return the elements of a tensor of strings."""

    @abstractmethod
    def parameter_of(self, tensor: TensorDef, name: str) -> str:
        """Return the name of a tensor of the file in the parameter store; "" if another tensor has the name."""

    @abstractmethod
    def branch(self, graph: GraphDef, given: Sequence[AnyValue] = (), label: str = "") -> list[AnyValue]:
        """Import a subgraph here, for these inputs; return the values of its outputs."""

    @abstractmethod
    def replace(self, graph: GraphDef) -> list[AnyValue]:
        """Import a subgraph in place of this node; return the values of its outputs, which are those of the node."""

    @abstractmethod
    def evaluated(self, name: str, given: Mapping[str, AnyValue]) -> AnyValue:
        """Recompute a value of the node's graph from these values of others."""

    @abstractmethod
    def declared(self, name: str) -> tuple[int, ...] | None:
        """Return the declared shape of a value if it is static."""

    @abstractmethod
    def bound_symbol(self, base: str) -> str:
        """Return a unique symbol that is bound to a run-time value."""

    @abstractmethod
    def symbol_of_data(self, base: str) -> tuple[str, Dim]:
        """Return such a name for a data-dependent size, and the dim it must equal: its symbol if any will do."""

    @abstractmethod
    def bind_dims(self, node: Node, index: int) -> tuple[Dim, ...]:
        """Bind symbols to the elements of an input computed at run time."""

    @abstractmethod
    def broadcast_size(self, dims: Collection[Dim]) -> Dim:
        """Return what these dims broadcast to if only the call tells whether they are 1: a required dim or a symbol."""

    @abstractmethod
    def is_solvable(self, left: Dim, right: Dim) -> bool:
        """Return whether a symbol can be solved for if these dims must be equal."""

    @abstractmethod
    def refuse_ranks(self, text: str) -> None:
        """Raise `RanksDiffer` for this node if the import can be tried with each branch alone."""

    @abstractmethod
    def chosen_branch(self) -> bool | None:
        """Return which branch of this If is the only one that the rest of the model accepts; None for either."""

    @abstractmethod
    def conditional(self, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
        """Import two graphs as the branches of an scf.if; return its results."""

    @abstractmethod
    def loop(
        self,
        round_: GraphDef | LoopIteration,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        """Import a graph, or a `LoopIteration`, as the body of an scf.while; return its carried values.

        With room for so many iterations, scan outputs and the trip count follow. Without a bound (`D.UNKNOWN`) scan
        outputs follow that have as many rows as there were iterations.
        """


class NotSupported(Exception):
    """No converter accepts the node; its function body may."""


class Node:
    """A node of the model, ready to be converted."""

    def __init__(
        self,
        operator: str,
        opset: int,
        inputs: Sequence[AnyValue | None],
        outputs: Sequence[str],
        attributes: Attributes | Iterable[AttributeDef],
        signature: Signature | None,
        builder: NodeImporter,
        domain: str = "",
        traits: frozenset[NodeTrait] = frozenset(),
    ) -> None:
        self.operator = operator
        self.opset = opset
        self.inputs = inputs
        self.outputs = outputs
        self.attr = attributes if isinstance(attributes, Attributes) else Attributes(attributes)
        self.signature = signature
        self.builder = builder
        self.domain = domain
        self.traits = traits
        """What the converters of the operator declare of it."""
        self._read: set[int] = set()

    def __len__(self) -> int:
        """Return the number of inputs, without absent ones at the end."""
        return max((i + 1 for i, value in enumerate(self.inputs) if value is not None), default=0)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def has_output(self, index: int) -> bool:
        return index < len(self.outputs) and bool(self.outputs[index])

    def any_value(self, index: int) -> AnyValue:
        """Return a required input of any kind."""
        self._read.add(index)
        result = self.inputs[index] if index < len(self.inputs) else None
        if result is None:
            raise NodeError(f"input '{self.input_name(index)}' is missing")
        return result

    def value(self, index: int) -> Tensor:
        """Return a required input that is a tensor."""
        result = self.any_value(index)
        if not isinstance(result, Tensor):
            raise NodeError(f"input '{self.input_name(index)}' is {result}, expected a tensor")
        return result

    def sequence(self, index: int) -> ListValue | ObjectValue:
        """Return a required input that is a sequence."""
        result = self.any_value(index)
        if result.kind.name != SEQUENCE or isinstance(result, (Tensor, OptionalValue)):
            raise NodeError(f"input '{self.input_name(index)}' is {result}, expected a sequence")
        return result

    def is_string(self, index: int) -> bool:
        """Return whether an input is a tensor of strings."""
        found = self.inputs[index] if index < len(self.inputs) else None
        return isinstance(found, ObjectValue) and found.kind.name == STRING

    def object(self, index: int) -> ir.Value | None:
        """Return an input of any kind as an SSA value; None if the node omits it."""
        return self.builder.ssa(self.any_value(index)) if self.has(index) else None

    def host(
        self, function: str, *values: Tensor | ir.Value | None, results: Sequence[Kind], **options: Any
    ) -> list[AnyValue]:
        """Call a host function on SSA values; return its results, which have these kinds."""
        given = [self.builder.full(value) if isinstance(value, Tensor) else value for value in values]
        return call_host(self.builder, function, given, results, **options)

    def __getitem__(self, index: int) -> Tensor:
        """Return an input as an SSA value."""
        return self.ssa(self.value(index))

    def ssa(self, value: AnyValue) -> Tensor:
        """Return a tensor that is no input, as an SSA value."""
        if not isinstance(value, Tensor):
            raise NodeError(f"'{value.name}' is {value}, expected a tensor")
        self.builder.full(value)
        return value

    def declared(self, output: int) -> tuple[int, ...] | None:
        """Return the declared shape of an output if it is static."""
        return self.builder.declared(self.outputs[output]) if self.has_output(output) else None

    def optional(self, index: int) -> Tensor | None:
        """Return an input as an SSA value, or None if the node omits it."""
        return self[index] if self.has(index) else None

    def all(self, start: int = 0) -> list[Tensor]:
        """Return all inputs from `start` on as SSA values."""
        return [self[i] for i in range(start, len(self))]

    def is_ring(self, index: int) -> bool:
        """Return whether an input is an input of the model that is a ring of rows."""
        if not self.builder.rings or not self.has(index):
            return False
        value = self.value(index)
        return value.name in self.builder.rings and value.value is not None and isinstance(value.value.owner, ir.Block)

    def type(self, index: int) -> TensorType:
        return self.value(index).type

    def ignore(self, *indices: int) -> None:
        """Declare that these inputs do not affect the result."""
        self._read.update(indices)

    def unread(self) -> str | None:
        """Return an attribute or an input that was not read; None if there is none."""
        for name in self.attr.by_name:
            if name not in self.attr.read:
                return f"attribute '{name}'"
        for index in range(len(self.inputs)):
            if self.has(index) and index not in self._read:
                return f"input '{self.input_name(index)}'"
        return None

    def converted(self, converters: Iterable[Callable[[Node], Converted]]) -> Sequence[Output]:
        """Return the outputs by the first converter that accepts the node."""
        complaint = f"{self.operator} is not supported with these attributes and inputs"
        for converter in converters:
            node = self.fresh()
            results = converter(node)
            if results is NotImplemented:
                continue
            made: Sequence[Output] = results if isinstance(results, (tuple, list)) else (results,)
            unread = node.unread() or node.unmade(len(made))
            if unread is None:
                return made
            complaint = f"{unread} is not supported"
        raise NotSupported(complaint)

    def unmade(self, count: int) -> str | None:
        """Return an output beyond the first `count`, which a converter did not make; None if there is none."""
        missing = [i for i in range(count, len(self.outputs)) if self.has_output(i)]
        return f"output #{missing[0]} ('{self.outputs[missing[0]]}')" if missing else None

    def fresh(self) -> Node:
        """Return the node as one of which nothing was read."""
        if not self._read and not self.attr.read:
            return self
        return self.with_inputs(self.inputs, Attributes(self.attr.by_name.values()))

    def with_inputs(self, inputs: Sequence[AnyValue | None], attributes: Attributes | None = None) -> Node:
        """Return the node on other inputs."""
        attributes = self.attr if attributes is None else attributes
        return Node(
            self.operator, self.opset, inputs, self.outputs, attributes, self.signature, self.builder, self.domain,
            self.traits,
        )  # fmt: skip

    def input_name(self, index: int) -> str:
        return self.signature.input_name(index) if self.signature else f"#{index}"

    def array(self, index: int) -> np.ndarray:
        """Return the elements of an input that must be constant."""
        value = self.value(index)
        if value.known is None or value.sizes is not None:
            raise NodeError(
                f"input '{self.input_name(index)}' ('{value.name}') must be a constant, but is computed at run time; "
                "fix the shapes of the model's inputs, or make it an initializer"
            )
        return value.known

    def scalar(self, index: int, default: float | None = None) -> Any:
        """Return the single element of a constant input as a Python number."""
        if not self.has(index):
            return default
        array = self.array(index)
        if array.size != 1:
            raise NodeError(f"input '{self.input_name(index)}' must have one element, got {self.type(index)}")
        return array.reshape(-1)[0].item()

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of an input that is a list of dims: numbers or expressions of symbols.

        Elements known only at run time become symbols.
        """
        value = self.value(index)
        if value.known is None:
            return self.builder.bind_dims(self, index)
        return tuple(map(as_dim, value.known.reshape(-1)))

    def ints(self, index: int) -> list[int]:
        """Return the elements of a constant list of integers."""
        return [int(item) for item in self.array(index).reshape(-1)]

    def axes(self, index: int, name: str = "axes") -> list[int] | None:
        """Return axes, an attribute in older opsets and an input in newer ones; None if absent."""
        if name in self.attr:
            return self.attr.ints(name)
        return self.ints(index) if self.has(index) else None

    def emit(self, operator: str | OperatorClass, *operands: Any, **attributes: Any) -> Tensor:
        """Make an operation of one result, of relax by name or of a class; return its value.

        Operands that may broadcast at run time are expanded.
        """
        result = self.emit_all(operator, *operands, **attributes)
        # Converters of extensions may unpack several results; `emit_all` has the type for that.
        return result[0] if len(result) == 1 else result  # type: ignore[return-value]

    def emit_all(self, operator: str | OperatorClass, *operands: Any, **attributes: Any) -> tuple[Tensor, ...]:
        """Make an operation like `emit`; return the values of its results, one or several."""
        cls = relax_op(operator) if isinstance(operator, str) else operator
        made = self.builder.operation(cls, operands, attributes)
        return tuple(map(self.builder.tensor, made.operation.results))

    def constant(self, array: npt.ArrayLike, like: TensorType | DType | str | None = None) -> Tensor:
        """Return the SSA value of a constant with the element type of `like`."""
        if like is not None:
            element = like.dtype if isinstance(like, TensorType) else dtype(like)
            array = np.asarray(array).astype(element.to_numpy())
        return self.ssa(constant(self.builder, np.asarray(array)))

    def tensor_attribute(self, name: str) -> np.ndarray:
        return self.builder.array(self.attr.tensor(name))


def is_exact(number: float) -> bool:
    """Return whether an f64 represents this number exactly, as Float attributes require."""
    return isinstance(number, (bool, float)) or int(float(number)) == number


def relax_op(name: str) -> type[DialectOp]:
    """Return the class of a relax operation."""
    result = DIALECT.operations.get(f"relax.{name}")
    if result is None:
        raise ValueError(f"relax has no operator '{name}': {nearest(name, (key[6:] for key in DIALECT.operations))}")
    return result


def type_of(value: ir.Value) -> TensorType:
    """Return the type of an SSA value."""
    result = TensorType.from_mlir(value.type)
    assert result is not None
    return result


def simple(operator: str, count: int = 1) -> Callable[[Node], Converted]:
    """Return a converter to one relax operation on the first `count` inputs, without attributes."""

    def convert(node: Node) -> Converted:
        return node.emit(operator, *(node[i] for i in range(count)))

    return convert
