"""The import of nodes: graphs in topological order, functions in place of calls, and a converter's view of a node.

`NodeImporter` imports the graph of a model. A node is folded, converted, or replaced by the nodes of its function
here; which converters there are, and how regions are made, `body.py` adds.
"""

from __future__ import annotations

import builtins
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.dialects.core.errors import OpMistake
from mirlo.dialects.core.op import OpError
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.frontends.builder import OF_BOOLS, GraphBuilder, assume_equal
from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx import graph as G
from mirlo.frontends.onnx.checkpoints import INTERVAL, Checkpoint
from mirlo.frontends.onnx.choices import Choices, Ended, Frame, RanksDiffer
from mirlo.frontends.onnx.errors import ConverterError, NodeError, OnnxImportError
from mirlo.frontends.onnx.expansion import EXPANSION_DEPTH
from mirlo.frontends.onnx.functions import Expansion, TooManyIterations
from mirlo.frontends.onnx.graph import (
    KIND_NAMES,
    AttributeDef,
    FunctionDef,
    GraphDef,
    NodeDef,
    TensorDef,
    TypeDef,
    wrong_kind,
)
from mirlo.frontends.onnx.inputs import identifier
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.node_inputs import NodeInputs
from mirlo.frontends.onnx.objects import ObjectBuilder, call_host, object_of
from mirlo.frontends.onnx.order import steps
from mirlo.frontends.onnx.schema_table import Signature, check_inputs, signature
from mirlo.frontends.onnx.values import (
    AnyValue,
    Converted,
    LoopIteration,
    ObjectValue,
    Output,
    Scope,
    outputs_of,
)
from mirlo.frontends.sizes import DimSymbols, Solved
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.callbacks import describe_raised
from mirlo.runtime.errors import MirloError, OutOfMemoryError
from mirlo.runtime.kinds import STRING, Kind
from mirlo.runtime.names import terminal
from mirlo.runtime.params import ParameterStore

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
        if value is default:
            return value
        texts = {item: item.decode("utf-8", "replace") for item in set(value)}  # forests repeat few words often
        return [texts[item] for item in value]

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


SYMBOL_LENGTH = 24
"""Characters of a value's name that are part of the symbols derived from it."""

MAX_ASSUMED_DIMS = 8
"""Most dims of a node's inputs that are assumed equal to others."""


class Skipped(Exception):
    """Raised when a value is needed that could not be made; the problem is recorded already."""


class Observer:
    """Receives the outcome of each node, and may replace values that could not be made."""

    builder: GraphBuilder | None = None
    """The import, once it has begun."""

    def imported(self, step: NodeDef, scope: Scope) -> None:
        """Handle an imported node: by a converter, by folding, or by its function body."""

    def failed(self, step: NodeDef, scope: Scope, problem: str) -> Sequence[AnyValue | None]:
        """Handle a node that cannot be imported; return replacements for its outputs."""
        return [None] * len(step.outputs)

    def skipped(self, step: NodeDef, scope: Scope) -> Sequence[AnyValue | None]:
        """Handle a node that needs a value that could not be made; return replacements for its outputs."""
        return [None] * len(step.outputs)

    def assumed(self, outputs: Sequence[str], text: str) -> None:
        """Handle a condition on sizes or values that each call checks, because the import depends on it."""


class NodeImporter(ObjectBuilder, ABC):
    """The import of the nodes of one model; operations go to the current insertion point."""

    def __init__(
        self,
        model: LoadedModel,
        store: ParameterStore,
        symbols: DimSymbols,
        trusts_declared: bool = True,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(model.name, store, model.path)
        self.taken = symbols.taken
        self.symbols = symbols
        self.model = model
        self.texts: list[ObjectValue] = []
        """The strings with an SSA value that was made for them, in order."""
        self.trusts_declared = trusts_declared
        """Whether declared shapes can be trusted: not if shapes of inputs were replaced."""
        self.observer = observer or Observer()
        self.observer.builder = self
        self.problems: list[str] = []
        self.steps: list[tuple[NodeDef, Scope]] = []
        """The nodes being imported, each inside of the previous one."""
        self.frames: list[Frame] = []
        """The lists of nodes being imported, each inside of the previous one."""
        self.imported = 0
        """Nodes imported so far, those of functions and subgraphs among them."""
        self._checked_at = -INTERVAL
        """Nodes imported before the last checkpoint."""
        self.expansion = Expansion(model.content.functions)
        self._orders: dict[GraphDef, list[NodeDef]] = {}
        """The nodes of graphs in topological order."""
        self._declared: dict[GraphDef, Mapping[str, tuple[int, ...]]] = {}
        """The declared shapes of values of graphs."""
        self.rings: Mapping[str, int] = {}
        """The inputs that are rings of rows, with the tokens of their windows."""
        self.choices: Choices | None = None
        """The branches of Ifs that are imported alone; None if none may be."""

    # Values

    def ssa(self, value: AnyValue) -> ir.Value:
        if isinstance(value, Tensor):
            return self.full(value)
        if not isinstance(value, ObjectValue):
            return object_of(value, self)
        if value.value is None:
            assert value.strings is not None
            words = {"strings": value.strings.reshape(-1).tolist(), "shape": list(value.strings.shape)}
            with self.region(value.region):
                (text,) = call_host(self, "mirlo.string.constant", [], [Kind(STRING, value.strings.shape)], **words)
                if value.places is not None:
                    operands = [self.ssa(text), self.full(value.places)]
                    (text,) = call_host(self, "mirlo.string.take", operands, [value.kind])
                value.value = self.ssa(text)
            self.texts.append(value)
        return value.value

    def parameter_of(self, tensor: TensorDef, name: str) -> str:
        """Return the name of a tensor of the file in the parameter store; "" if another tensor has the name."""
        return name if self.model.content.parameters.get(name) is tensor else ""

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator on tensors that broadcast, as relax infers its shape."""
        if name in OF_BOOLS and operands[0].dtype.is_bool:
            name = OF_BOOLS[name]
        return self.emit(name, *operands, **attributes)

    @property
    def is_in_branch(self) -> bool:
        """Return whether operations are inserted in code that a call may skip."""
        return any(block.owner.operation.name == "scf.if" for block in self.blocks)

    def close_regions(self) -> None:
        """Return to the outermost region after an exception."""
        del self.blocks[1:]

    # Interface for nodes

    def evaluated(self, name: str, replacements: Mapping[str, AnyValue]) -> AnyValue:
        """Recompute a value of the node's graph from these values of others."""
        step, scope = self.steps[-1]
        inner = Scope(scope.opsets, None, f"{scope.prefix}{step.name}/", scope.depth + 1)
        if inner.depth > EXPANSION_DEPTH:
            raise NodeError(f"gradients are nested more than {EXPANSION_DEPTH} deep")
        outputs = {output for node in scope.nodes for output in node.outputs}
        inner.values.update({key: value for key, value in scope.values.items() if key not in outputs})
        inner.values.update(replacements)
        nodes = [node for node in scope.nodes if not set(node.outputs) & set(replacements)]
        return self.nodes(nodes, [name], inner)[0]

    def declared(self, name: str) -> tuple[int, ...] | None:
        """Return the declared shape of a value if it is static."""
        return self.steps[-1][1].declared.get(name)

    def array(self, tensor: TensorDef) -> np.ndarray:
        """Return the elements of a tensor of the file."""
        return self.model.weights.array(tensor)

    def strings(self, tensor: TensorDef) -> np.ndarray:
        """Return the elements of a tensor of strings."""
        return self.model.weights.strings(tensor)

    def new_symbol(self, base: str) -> str:
        return self.symbols.new(identifier(base[-SYMBOL_LENGTH:]))

    def bound_symbol(self, base: str) -> str:
        """Return a unique symbol that is bound to a run-time value."""
        return self.symbols.bind(identifier(base[-SYMBOL_LENGTH:]))

    def symbol_of_data(self, base: str) -> tuple[str, Dim]:
        """Return a symbol for a data-dependent size, and the dim that it must equal: the symbol itself by default."""
        return self.symbols.of_data(identifier(base[-SYMBOL_LENGTH:]))

    def solution(self, left: Dim, right: Dim) -> Solved | None:
        """Solve for a symbol of two dims that must be equal; in a branch, not for symbols of inputs."""
        return self.symbols.solve(left, right, with_inputs=not self.is_in_branch)

    def broadcast_size(self, dims: Collection[Dim]) -> Dim:
        """Return the broadcast dim if it is known only at run time which dims are 1: a required dim or a symbol."""
        step, scope = self.steps[-1]
        base = next(filter(None, step.outputs), "")
        key = f"{scope.prefix}{step.name} {base}"
        size = self.symbols.broadcast(key, identifier(base[-SYMBOL_LENGTH:]), dims)
        if (required := self.symbols.broadcast_requirement(dims)) is not None:
            listed = " and ".join(map(str, dims))
            node = f"{scope.prefix}{step.name} ({step.operator})"
            what = f"{node}: dims {listed} must broadcast to {size}, which other nodes need, not to {required[1]}"
            RequireDims.build(dims=required, bounds=required[::-1], what=what, result_types=[])
        return size

    def branch(self, graph: GraphDef, arguments: Sequence[AnyValue] = (), label: str = "") -> list[AnyValue]:
        """Import a subgraph here, for these inputs; return the values of its outputs."""
        step, outer = self.steps[-1]
        scope = outer.within(f"{outer.prefix}{step.name}/{label}")
        scope.values.update(zip((value.name for value in graph.inputs), arguments, strict=False))
        return self.graph(graph, scope)

    def replace(self, graph: GraphDef) -> list[AnyValue]:
        """Import a subgraph in place of this node; return the values of its outputs, which are those of the node."""
        return self._in_place(list, lambda: self.branch(graph))

    def _in_place(
        self, outputs: Callable[[Sequence[AnyValue]], Sequence[AnyValue | None]], make: Callable[[], list[AnyValue]]
    ) -> list[AnyValue]:
        """Import nodes in place of the current one; its outputs become their results."""
        frame = self.frames[-1]
        frame.outputs = outputs
        try:
            return make()
        finally:
            frame.outputs = None

    def chosen_branch(self) -> bool | None:
        """Return which branch of this If is the only one that the rest of the model accepts; None for either."""
        return (self.choices or {}).get(self.place_of(*self.steps[-1]))

    def refuse_ranks(self, text: str) -> None:
        """Raise `RanksDiffer` for this node if the import can be tried with each branch alone."""
        if self.choices is not None:
            place = self.place_of(*self.steps[-1])
            raise RanksDiffer(place, f"{self.model.name}: node '{place}' (If): {text}")

    @staticmethod
    def place_of(step: NodeDef, scope: Scope) -> str:
        """Return the path of a node through the graphs and functions around it."""
        return f"{scope.prefix}{step.name}"

    # What `body.py` adds

    @abstractmethod
    def traits_of(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        """Return the traits that the converters of an operator and its class declare."""

    @abstractmethod
    def converters_of(self, domain: str, operator: str, version: int) -> Sequence[Callable[[Node], Converted]]:
        """Return the converters of an operator in a version, in the order in which they are tried."""

    @abstractmethod
    def folded(self, node: Node, compute: Callable[[], Tensor]) -> Sequence[Tensor] | None:
        """Return the outputs of a node if they can be folded from its inputs; `compute` emits its operation."""

    @abstractmethod
    def describe(self, node: Node, result: Tensor) -> None:
        """Record what is known of the elements of the first result of a node."""

    @abstractmethod
    def moved_strings(
        self, node: Node, convert: Callable[[list[AnyValue | None]], Sequence[AnyValue | None]]
    ) -> Sequence[AnyValue | None]:
        """Return the outputs of a node that moves strings; `convert` makes those of the node on indices."""

    @abstractmethod
    def forked(self, frame: Frame) -> list[AnyValue]:
        """Import the rest of a graph, which begins with an If, once for each branch.

        If the graph is in place of a node, the rest of the graph around it follows in both branches.
        """

    @abstractmethod
    def conditional(self, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
        """Import two graphs as the branches of an scf.if; return its results."""

    @abstractmethod
    def loop(
        self,
        iteration: GraphDef | LoopIteration,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        """Import a graph, or a `LoopIteration`, as the body of an scf.while; return its carried values.

        With room for this many iterations, scan outputs and the trip count follow. Without a bound (`D.UNKNOWN`) scan
        outputs follow that have as many rows as there were iterations.
        """

    # Graphs and nodes

    def graph(self, graph: GraphDef, scope: Scope) -> list[AnyValue]:
        """Import the nodes of a graph and return the values of its outputs."""
        # Initializers that have values already are the default values of inputs that are not constants.
        tensors = [tensor for tensor in graph.initializers if tensor.name not in scope.values]
        for tensor, value in zip(tensors, self.model.weights.values(tensors, self), strict=True):
            value.region = 0
            if isinstance(value, Tensor):
                value.parameter = self.parameter_of(tensor, tensor.name)
            scope.define(value)
        if self.trusts_declared:
            if graph not in self._declared:
                self._declared[graph] = self._declared_shapes(graph)
            scope.declared.update(self._declared[graph])
        return self.nodes(graph.nodes, [value.name for value in graph.outputs], scope, graph)

    def _declared_shapes(self, graph: GraphDef) -> Mapping[str, tuple[int, ...]]:
        """Return the declared static shapes of values, and those that follow from them."""
        result = graph.static_shapes()
        for node in reversed(graph.nodes):
            if not node.inputs or not node.outputs or node.outputs[0] not in result:
                continue
            is_function = (node.domain, node.operator, node.overload) in self.model.content.functions
            if not is_function and NodeTrait.SAME_SHAPE in self.traits_of(node.domain, node.operator):
                result.setdefault(node.inputs[0], result[node.outputs[0]])
        return result

    def nodes(
        self, nodes: Sequence[NodeDef], wanted: Sequence[str], scope: Scope, graph: GraphDef | None = None
    ) -> list[AnyValue]:
        """Import the nodes that the wanted values need; those of a graph are ordered once."""
        scope.nodes = nodes
        order = None if graph is None else self._orders.get(graph)
        if order is None:
            order = steps(nodes, scope.values, scope.outer_names(), wanted, self.model.name, scope.prefix)
            if graph is not None:
                self._orders[graph] = order
        frame, steps_around = Frame(order, wanted, scope), len(self.steps)
        self.frames.append(frame)
        try:
            return self._frame(frame)
        except Ended as ended:
            if ended.frame is not frame:
                raise
            del self.steps[steps_around:]
            return ended.values
        finally:
            self.frames.pop()

    def _frame(self, frame: Frame) -> list[AnyValue]:
        order, wanted, scope = frame.order, frame.wanted, frame.scope
        checkpoints: list[Checkpoint] = []
        i = 0
        while i < len(order):
            frame.index = i
            if self.choices and self.choices.get(self.place_of(order[i], scope), True) is None:
                return self.forked(frame)
            if self.symbols.solutions is not None and not self.depth and self.imported >= self._checked_at + INTERVAL:
                checkpoints.append(Checkpoint.of(self, i))
                self._checked_at = self.imported
            try:
                self._step(order[i], scope)
                i += 1
            except Solved as solved:
                i = self._resumed(solved, checkpoints)
        values = [scope.find(name) for name in wanted]
        if any(value is None for value in values):
            raise Skipped
        return [value for value in values if value is not None]

    def _resumed(self, solved: Solved, checkpoints: list[Checkpoint]) -> int:
        """Return to the last checkpoint before the solved symbol was made; return the index of the next node.

        Raise the solution if the symbol is older, or if the import resumed too often.
        """
        solutions = self.symbols.solutions
        while checkpoints and not self.symbols.is_made_after(solved.name, checkpoints[-1].symbols):
            checkpoints.pop()
        if not checkpoints or solutions is None:
            raise solved
        last = checkpoints[-1]
        if not solutions.add_repeated(self.imported - last.imported, self.imported):
            raise solved
        solutions.add(solved)
        last.restore(self)
        self._checked_at = last.imported
        return last.step

    def _step(self, step: NodeDef, scope: Scope) -> None:
        self.imported += 1
        inputs = [scope.find(name) if name else None for name in step.inputs]
        values: Sequence[AnyValue | None] = [None] * len(step.outputs)
        self.steps.append((step, scope))
        try:
            if any(name and value is None for name, value in zip(step.inputs, inputs, strict=True)):
                raise Skipped
            if len(self.steps) > 1:
                caller, around = self.steps[-2]
                self.expansion.count(caller.operator, f"{around.prefix}{caller.name}")
            with ir.Location.name(f"{scope.prefix}{step.name}", ir.Location.file(self.model.name, step.index + 1, 0)):
                values = self._convert_agreeing(step, inputs, scope)
            self.observer.imported(step, scope)
        except (TooManyIterations, RanksDiffer, ConverterError):
            self.steps.pop()
            raise
        except Skipped:
            values = self.observer.skipped(step, scope)
        except (OnnxImportError, OpError) as error:
            if isinstance(error, OpMistake):
                error = self._invalid(step, scope, inputs, error)
            self.problems.append(self._problem(step, scope, inputs, error))
            values = self.observer.failed(step, scope, str(error))
        except (Solved, Ended, OutOfMemoryError):
            raise
        except MemoryError as error:
            problem = self._problem(step, scope, inputs, error)
            raise OutOfMemoryError(f"there is too little memory to import the model: {problem}") from error
        except Exception as error:
            self.problems.append(self._problem(step, scope, inputs, self._invalid(step, scope, inputs, error)))
            values = self.observer.failed(step, scope, str(error))
        self.steps.pop()
        self.assign(step, values, scope)

    def assign(self, step: NodeDef, values: Sequence[AnyValue | None], scope: Scope) -> None:
        """Give the outputs of a node their values."""
        for name, value in zip(step.outputs, values, strict=False):
            if value is not None and value.region is None:
                is_constant = value.array is not None if isinstance(value, Tensor) else _is_text(value)
                value.region = 0 if is_constant else self.depth
            if name:
                scope.values[name] = value

    def _convert_agreeing(
        self, step: NodeDef, inputs: list[AnyValue | None], scope: Scope
    ) -> Sequence[AnyValue | None]:
        """Convert a node; solve for dims that it requires to be equal, or else assume them equal."""
        for _ in range(MAX_ASSUMED_DIMS):
            try:
                return self._convert(step, inputs, scope)
            except DimsDiffer as error:
                what = f"{scope.prefix}{step.name} ({step.operator}): {error}"
                agreed = assume_equal(error.left, error.right, inputs, what)
                if solved := self.solution(error.left, error.right):
                    if agreed is not None and not solved.of_data:
                        self._solve_further(solved, step, agreed, scope)
                    raise solved from None
                if agreed is None:
                    raise
                inputs = agreed
        return self._convert(step, inputs, scope)

    def _solve_further(self, solved: Solved, step: NodeDef, inputs: list[AnyValue | None], scope: Scope) -> None:
        """Collect all equations that a node requires of the inputs' symbols, so that the import restarts once.

        The operations emitted here are erased with the rest of the module.
        """
        for _ in range(MAX_ASSUMED_DIMS):
            try:
                self._convert(step, inputs, scope)
                return
            except DimsDiffer as error:
                further = self.solution(solved.substitute(error.left), solved.substitute(error.right))
                agreed = assume_equal(error.left, error.right, inputs, str(error))
                if further is None or further.of_data:
                    return
                solved.also.append(further)
                if agreed is None:
                    return
                inputs = agreed
            except (OnnxImportError, OpError, Skipped, Solved):
                return  # the next import finds and reports it

    def _convert(self, step: NodeDef, inputs: list[AnyValue | None], scope: Scope) -> Sequence[AnyValue | None]:
        body = self.model.content.functions.get((step.domain, step.operator, step.overload))
        if body is not None:
            return self._expand(body, step, inputs, scope)
        domain, operator, outputs = step.domain, step.operator, step.outputs
        if step.problem:
            raise NodeError(step.problem)
        version = scope.opsets.get(domain)
        if version is None:
            raise NodeError(f"the model imports no version of the operator set '{domain or 'ai.onnx'}'")
        declared = signature(domain, operator, version)
        if declared is not None:
            check_inputs(declared, inputs)

        traits = self.traits_of(domain, operator)
        node = Node(operator, version, inputs, outputs, step.attributes, declared, self, domain, traits)
        if traits & {NodeTrait.MOVES, NodeTrait.MEASURES} and any(
            isinstance(value, ObjectValue) and value.kind.name == STRING for value in inputs
        ):
            return self.moved_strings(node, lambda places: self._convert(step, places, scope))

        candidates = self.converters_of(domain, operator, version)

        def compute() -> Tensor:
            return node.ssa(node.converted(candidates)[0])  # type: ignore[arg-type] # what folds makes tensors

        folded = self.folded(node, compute)
        if folded is not None:
            return folded
        try:
            results = node.converted(candidates)
        except NotSupported as problem:
            body = functions.of_schema(step, version, inputs)
            if body is None:
                raise NodeError(str(problem) + functions.newer_package(step, version)) from None
            return self._expand(body, step, inputs, scope)
        return self._named(node, results)

    def _named(self, node: Node, results: Sequence[Output]) -> Sequence[AnyValue | None]:
        """Return the outputs of a node, with names and with what is known of their elements."""
        values: list[AnyValue | None] = []
        for name, result in zip(node.outputs, results, strict=False):
            value = self.tensor(result) if isinstance(result, ir.Value) else result
            if value is not None and not value.name:
                value.name = name
            values.append(value)
        if values and isinstance(values[0], Tensor):
            self.describe(node, values[0])
        return values

    def _expand(
        self, body: FunctionDef, step: NodeDef, inputs: Sequence[AnyValue | None], scope: Scope
    ) -> Sequence[AnyValue | None]:
        """Import a function's nodes in place of the node that calls it."""
        if scope.depth >= EXPANSION_DEPTH:
            raise NodeError(f"functions are nested more than {EXPANSION_DEPTH} deep: '{body.name}' calls itself?")
        if len(inputs) > len(body.inputs):
            raise NodeError(f"function '{body.name}' takes {len(body.inputs)} inputs, got {len(inputs)}")
        operands = list(inputs) + [None] * (len(body.inputs) - len(inputs))
        nodes = self.expansion.instance(body, step, tuple(value is not None for value in operands))
        prefix = f"{scope.prefix}{step.name}/"
        inner = Scope(functions.opsets(body, scope.opsets), None, prefix, scope.depth + 1)
        inner.values.update(
            {name: value for name, value in zip(body.inputs, operands, strict=True) if value is not None}
        )
        wanted = {formal: name for formal, name in zip(body.outputs, step.outputs, strict=False) if name}

        def outputs(values: Sequence[AnyValue]) -> list[AnyValue | None]:
            by_formal = dict(zip(wanted, values, strict=True))
            return [by_formal.get(formal) for formal in body.outputs]

        return outputs(self._in_place(outputs, lambda: self.nodes(nodes, list(wanted), inner)))

    def _invalid(
        self, step: NodeDef, scope: Scope, inputs: Sequence[AnyValue | None], error: Exception
    ) -> OnnxImportError:
        """Return the error for an invalid node whose converter raised; if the node is valid, raise the mistake."""
        from mirlo.frontends.onnx.writing import inference_error  # for errors only

        text = inference_error(step, scope.opsets.get(step.domain, 1), inputs)
        if text is not None:
            return NodeError(f"the node is not valid: {text}")
        if isinstance(error, MirloError):
            raise error
        reason = str(error) if isinstance(error, OpMistake) else f"its converter raised {describe_raised(error)}"
        raise ConverterError(self._problem(step, scope, inputs, NodeError(reason))) from error

    def _problem(self, step: NodeDef, scope: Scope, inputs: Sequence[AnyValue | None], error: Exception) -> str:
        listed = ", ".join(f"'{value.name}' {value}" if value else "none" for value in inputs)
        text = str(error).removeprefix(f"{self.model.name}: ")
        name = f"{scope.prefix}{step.name}"
        return f"{self.model.name}: node '{name}' ({step.operator}): {text} [inputs: {listed or 'none'}]"


class NotSupported(Exception):
    """No converter accepts the node; its function body may."""


class Node(NodeInputs):
    """A node of the model, ready to be converted."""

    builder: NodeImporter

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
        super().__init__(operator, inputs, outputs, signature, builder)
        self.opset = opset
        self.attr = attributes if isinstance(attributes, Attributes) else Attributes(attributes)
        self.domain = domain
        self.traits = traits
        """What the converters of the operator declare of it."""

    def has_output(self, index: int) -> bool:
        return index < len(self.outputs) and bool(self.outputs[index])

    def declared(self, output: int) -> tuple[int, ...] | None:
        """Return the declared shape of an output if it is static."""
        return self.builder.declared(self.outputs[output]) if self.has_output(output) else None

    def is_ring(self, index: int) -> bool:
        """Return whether an input is an input of the model that is a ring of rows."""
        if not self.builder.rings or not self.has(index):
            return False
        value = self.value(index)
        return value.name in self.builder.rings and value.value is not None and isinstance(value.value.owner, ir.Block)

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
            outputs = outputs_of(converter, results)
            unread = node.unread() or node.unmade(len(outputs))
            if unread is None:
                return outputs
            complaint = f"{unread} is not supported"
        raise NotSupported(complaint)

    def unmade(self, count: int) -> str | None:
        """Return an output beyond the first `count`, for which the converter returned no value, or None."""
        missing = [i for i in range(count, len(self.outputs)) if self.has_output(i)]
        return f"output #{missing[0]} ('{self.outputs[missing[0]]}')" if missing else None

    def fresh(self) -> Node:
        """Return a copy of the node on which no attribute or input is marked as read."""
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

    def axes(self, index: int, name: str = "axes") -> list[int] | None:
        """Return axes, an attribute in older opsets and an input in newer ones; None if absent."""
        if name in self.attr:
            return self.attr.ints(name)
        return self.ints(index) if self.has(index) else None

    def tensor_attribute(self, name: str) -> np.ndarray:
        return self.builder.array(self.attr.tensor(name))


def _is_text(value: AnyValue) -> bool:
    return isinstance(value, ObjectValue) and value.is_constant
