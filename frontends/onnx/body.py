"""Conversion of nodes to relax operations: constants, folding of shape arithmetic, converters, inlining."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, symbol
from mirlo.dialects.core.errors import BroadcastDiffers, DimsDiffer, OpMistake, describe_raised
from mirlo.dialects.core.op import DialectOp, OpError
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.frontends.builder import OF_BOOLS, GraphBuilder
from mirlo.frontends.onnx import functions, regions, schema
from mirlo.frontends.onnx.broadcasts import Broadcasts, expanded_operands
from mirlo.frontends.onnx.checkpoints import INTERVAL, Checkpoint
from mirlo.frontends.onnx.choices import Choices, Ended, Frame, RanksDiffer, frames_after
from mirlo.frontends.onnx.declared import declared_shapes
from mirlo.frontends.onnx.equations import Solutions, Solved, assume_equal, solve
from mirlo.frontends.onnx.errors import ConverterError, NodeError, OnnxImportError
from mirlo.frontends.onnx.fold import fold, fold_fractions, fractions_of, partial_of
from mirlo.frontends.onnx.functions import Expansion, TooManyIterations
from mirlo.frontends.onnx.graph import FunctionDef, GraphDef, NodeDef, TensorDef
from mirlo.frontends.onnx.inputs import identifier
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.node import LoopIteration, Node, NodeImporter, NodeTrait, NotSupported
from mirlo.frontends.onnx.objects import call_host, object_of
from mirlo.frontends.onnx.order import steps
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.runtime_sizes import bind, bind_unknown, known_sizes, vector
from mirlo.frontends.onnx.strings import moved
from mirlo.frontends.onnx.validity import inference_error
from mirlo.frontends.onnx.values import AnyValue, ObjectValue, Output, Scope
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.errors import MirloError
from mirlo.runtime.kinds import STRING
from mirlo.runtime.params import ParameterStore

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


class Body(NodeImporter):
    """The import of one function body; operations go to the current insertion point."""

    def __init__(
        self,
        model: LoadedModel,
        store: ParameterStore,
        trusts_declared: bool = True,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(model.name, store, model.path)
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
        self.solvable: set[str] = set()
        """Input symbols that may be replaced by what operators require."""
        self.solutions: Solutions | None = None
        """The solutions of symbols; None if no more are searched for."""
        self.of_data: dict[str, int] = {}
        """Symbols for data-dependent sizes, with their position in the order of creation."""
        self.imported = 0
        """Nodes imported so far, those of functions and subgraphs among them."""
        self._checked_at = -INTERVAL
        """Nodes imported before the last checkpoint."""
        self.expansion = Expansion(model.content.functions)
        self._orders: dict[GraphDef, list[NodeDef]] = {}
        """The nodes of graphs in topological order."""
        self._declared: dict[GraphDef, Mapping[str, tuple[int, ...]]] = {}
        """The declared shapes of values of graphs."""
        self.bound: dict[str, None] = {}
        """Symbols that are bound to run-time values, in order of creation."""
        self.rings: Mapping[str, int] = {}
        """The inputs that are rings of rows, with the tokens of their windows."""
        self.broadcasts = Broadcasts()
        self.choices: Choices | None = None
        """The branches of Ifs that are imported alone; None if none may be."""
        self.symbol_count = 0
        """Number of symbols made for data-dependent sizes."""

    # Values

    @property
    def graph_of_model(self) -> GraphDef:
        return self.model.content.graph

    @property
    def name_of_model(self) -> str:
        return self.model.name

    def ssa(self, value: AnyValue) -> ir.Value:
        if isinstance(value, Tensor):
            return self.full(value)
        if not isinstance(value, ObjectValue):
            return object_of(value, self)
        if value.value is None:
            assert value.strings is not None
            words = {"strings": value.strings.reshape(-1).tolist(), "shape": list(value.strings.shape)}
            with self.region(value.region):
                (made,) = call_host(self, "mirlo.string.constant", [], [value.kind], **words)
                value.value = self.ssa(made)
            self.texts.append(value)
        return value.value

    def parameter_of(self, tensor: TensorDef, name: str) -> str:
        return name if self.model.content.parameters.get(name) is tensor else ""

    def operation(self, operator: type[DialectOp], operands: Sequence[Any], attributes: Mapping[str, Any]) -> ir.OpView:
        """Make an operation; operands that may broadcast at run time are expanded."""
        operands = list(map(self.operand, operands))
        while True:
            try:
                return super().operation(operator, operands, attributes)
            except BroadcastDiffers as error:
                expanded = expanded_operands(self, operands, error)
                if expanded is None:
                    raise
                operands = expanded

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator on tensors that broadcast, as relax infers its shape."""
        if name in OF_BOOLS and operands[0].dtype.is_bool:
            name = OF_BOOLS[name]
        return self.emit(name, *operands, **attributes)

    @property
    def is_in_branch(self) -> bool:
        """Whether operations are inserted where a call may not come to."""
        return any(block.owner.operation.name == "scf.if" for block in self.blocks)

    def close_regions(self) -> None:
        """Return to the outermost region after an exception."""
        del self.blocks[1:]

    # Interface for nodes

    def evaluated(self, name: str, given: Mapping[str, AnyValue]) -> AnyValue:
        step, scope = self.steps[-1]
        inner = Scope(scope.opsets, None, f"{scope.prefix}{step.name}/", scope.depth + 1)
        if inner.depth > functions.EXPANSION_DEPTH:
            raise NodeError(f"gradients are nested more than {functions.EXPANSION_DEPTH} deep")
        outputs = {output for node in scope.nodes for output in node.outputs}
        inner.values.update({key: value for key, value in scope.values.items() if key not in outputs})
        inner.values.update(given)
        nodes = [node for node in scope.nodes if not set(node.outputs) & set(given)]
        return self._nodes(nodes, [name], inner)[0]

    def declared(self, name: str) -> tuple[int, ...] | None:
        return self.steps[-1][1].declared.get(name)

    def array(self, tensor: TensorDef) -> np.ndarray:
        return self.model.weights.array(tensor)

    def strings(self, tensor: TensorDef) -> np.ndarray:
        return self.model.weights.strings(tensor)

    def new_symbol(self, base: str) -> str:
        self.symbol_count += 1
        name = f"{identifier(base[-SYMBOL_LENGTH:])}.s{self.symbol_count}"
        return self.new_symbol(base) if name in self.taken else name

    def bound_symbol(self, base: str) -> str:
        name = self.new_symbol(base)
        self.bound[name] = None
        return name

    def symbol_of_data(self, base: str) -> tuple[str, Dim]:
        name = self.bound_symbol(base)
        if self.solutions is None:
            return name, symbol(name)
        self.of_data[name] = len(self.of_data)
        return name, self.solutions.dims.get(name, symbol(name))

    def bind_dims(self, node: Node, index: int) -> tuple[Dim, ...]:
        values, what = vector(node, index), f"input '{node.input_name(index)}' must be sizes"
        elements = node.value(index).partial
        return bind(node, values, what) if elements is None else bind_unknown(node, values, what, known_sizes(elements))

    def is_solvable(self, left: Dim, right: Dim) -> bool:
        return self._solution(left, right) is not None

    def _solution(self, left: Dim, right: Dim) -> Solved | None:
        """Return what follows for a symbol if two dims must be equal; a branch requires nothing of the inputs."""
        return solve(left, right, () if self.is_in_branch else self.solvable, self.of_data)

    def broadcast_size(self, dims: Collection[Dim]) -> Dim:
        step, scope = self.steps[-1]
        base = next(filter(None, step.outputs), "")
        size = self.broadcasts.size(f"{scope.prefix}{step.name} {base}", base[-SYMBOL_LENGTH:], dims, self)
        if (required := self.broadcasts.requirement(dims)) is not None:
            listed = " and ".join(map(str, dims))
            node = f"{scope.prefix}{step.name} ({step.operator})"
            what = f"{node}: dims {listed} must broadcast to {size}, which other nodes need, not to {required[1]}"
            RequireDims.build(dims=required, bounds=required[::-1], what=what, result_types=[])
        return size

    def branch(self, graph: GraphDef, given: Sequence[AnyValue] = (), label: str = "") -> list[AnyValue]:
        step, outer = self.steps[-1]
        scope = outer.within(f"{outer.prefix}{step.name}/{label}")
        scope.values.update(zip((value.name for value in graph.inputs), given, strict=False))
        return self.graph(graph, scope)

    def replace(self, graph: GraphDef) -> list[AnyValue]:
        return self._in_place(list, lambda: self.branch(graph))

    def _in_place(
        self, outputs: Callable[[Sequence[AnyValue]], Sequence[AnyValue | None]], make: Callable[[], list[AnyValue]]
    ) -> list[AnyValue]:
        """Import nodes in place of the current one, whose outputs are made of their results."""
        frame = self.frames[-1]
        frame.outputs = outputs
        try:
            return make()
        finally:
            frame.outputs = None

    def chosen_branch(self) -> bool | None:
        return (self.choices or {}).get(self._place(*self.steps[-1]))

    def refuse_ranks(self, text: str) -> None:
        if self.choices is not None:
            place = self._place(*self.steps[-1])
            raise RanksDiffer(place, f"{self.model.name}: node '{place}' (If): {text}")

    @staticmethod
    def _place(step: NodeDef, scope: Scope) -> str:
        return f"{scope.prefix}{step.name}"

    def conditional(self, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
        return regions.choose(self, condition, then_graph, else_graph)

    def loop(
        self,
        round_: LoopIteration | GraphDef,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        if not isinstance(round_, LoopIteration):
            round_ = regions.iteration_of_graph(self, round_, len(carried))
        return regions.repeat(self, round_, limit, going, carried, room)

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
                self._declared[graph] = declared_shapes(graph, self.model.content.functions)
            scope.declared.update(self._declared[graph])
        return self._nodes(graph.nodes, [value.name for value in graph.outputs], scope, graph)

    def _nodes(
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
            if self.choices and self.choices.get(self._place(order[i], scope), True) is None:
                return self._forked(frame)
            if self.solutions is not None and not self.depth and self.imported >= self._checked_at + INTERVAL:
                checkpoints.append(Checkpoint.of(self, i))
                self._checked_at = self.imported
            try:
                self._step(order[i], scope)
                i += 1
            except Solved as solved:
                i = self._resumed(solved, checkpoints)
        found = [scope.find(name) for name in wanted]
        if any(value is None for value in found):
            raise Skipped
        return [value for value in found if value is not None]

    def _resumed(self, found: Solved, checkpoints: list[Checkpoint]) -> int:
        """Return to the last checkpoint before a symbol was made that is solved for, and the node that comes next.

        Raise what was found if the symbol is older, or if that would be done too often.
        """
        while checkpoints and checkpoints[-1].of_data > self.of_data.get(found.name, -1):
            checkpoints.pop()
        if not checkpoints or self.solutions is None:
            raise found
        last = checkpoints[-1]
        if not self.solutions.add_repeated(self.imported - last.imported, self.imported):
            raise found
        self.solutions.add(found)
        last.restore(self)
        self._checked_at = last.imported
        return last.step

    def _forked(self, frame: Frame) -> list[AnyValue]:
        """Import the rest of a graph, which begins with an If, once for each branch.

        If the graph is in place of a node, the rest of the graph around it follows in both branches.
        """
        step, scope = frame.order[frame.index], frame.scope
        condition = scope.find(step.inputs[0])
        if not isinstance(condition, Tensor):
            raise Skipped
        around, after = self.frames[:-1], frames_after(self.frames)

        def end(flag: bool) -> list[AnyValue]:
            label = f"{step.name}:{'then' if flag else 'else'}/"
            inner = self._scope_of_rest(frame, label)
            self.choices = {**(self.choices or {}), self._place(step, inner): flag}
            within = self.frames
            try:
                self.frames = list(around)
                values = self._nodes(frame.order[frame.index :], frame.wanted, inner)
                for outer in after:
                    self.frames = self.frames[:-1]
                    values = self._nodes_after(outer, values, self._scope_of_rest(outer, label))
            except Ended as ended:
                values = ended.values
            finally:
                self.frames = within
            return values

        steps_around = list(self.steps)
        self.steps.append((step, scope))
        values = regions.fork(self, condition, [partial(end, True), partial(end, False)])
        self.steps = steps_around
        if after:
            raise Ended(after[-1], values)
        return values

    def _nodes_after(self, frame: Frame, values: Sequence[AnyValue], scope: Scope) -> list[AnyValue]:
        """Import the nodes behind the current one of a frame, for the results of the nodes in its place."""
        assert frame.outputs is not None
        step = frame.order[frame.index]
        self._assign(step, frame.outputs(values), scope)
        self.observer.imported(step, scope)
        return self._nodes(frame.order[frame.index + 1 :], frame.wanted, scope)

    @staticmethod
    def _scope_of_rest(frame: Frame, label: str) -> Scope:
        """Return a scope for the rest of a frame in a branch."""
        inner = frame.scope.within(f"{frame.scope.prefix}{label}")
        inner.declared = frame.scope.declared
        return inner

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
        except (TooManyIterations, ConverterError):
            self.steps.pop()
            raise
        except Skipped:
            values = self.observer.skipped(step, scope)
        except (OnnxImportError, OpError) as error:
            if isinstance(error, OpMistake):
                error = self._invalid(step, scope, inputs, error)
            self.problems.append(self._problem(step, scope, inputs, error))
            values = self.observer.failed(step, scope, str(error))
        except (Solved, RanksDiffer, Ended, MemoryError):
            raise
        except Exception as error:
            self.problems.append(self._problem(step, scope, inputs, self._invalid(step, scope, inputs, error)))
            values = self.observer.failed(step, scope, str(error))
        self.steps.pop()
        self._assign(step, values, scope)

    def _assign(self, step: NodeDef, values: Sequence[AnyValue | None], scope: Scope) -> None:
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
                if solutions := self._solution(error.left, error.right):
                    raise solutions from None
                what = f"{scope.prefix}{step.name} ({step.operator}): {error}"
                if (agreed := assume_equal(error.left, error.right, inputs, what)) is None:
                    raise
                inputs = agreed
        return self._convert(step, inputs, scope)

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
        signature = schema.signature(domain, operator, version)
        if signature is not None:
            schema.check_inputs(signature, inputs)

        traits = CONVERTERS.traits(domain, operator)
        node = Node(operator, version, inputs, outputs, step.attributes, signature, self, domain, traits)
        if traits & {NodeTrait.MOVES, NodeTrait.MEASURES} and any(
            isinstance(value, ObjectValue) and value.kind.name == STRING for value in inputs
        ):
            return moved(node, traits, lambda places: self._convert(step, places, scope))

        candidates = CONVERTERS.find(domain, operator, version)

        def compute() -> Tensor:
            return node.ssa(node.converted(candidates)[0])  # type: ignore[arg-type] # what folds makes tensors

        folded = fold(node, compute) or fold_fractions(node, compute)
        if folded is not None:
            return folded
        try:
            results = node.converted(candidates)
        except NotSupported as problem:
            body = functions.of_schema(step, version, inputs)
            if body is None:
                raise NodeError(str(problem) + functions.newer_package(step, version)) from None
            return self._expand(body, step, inputs, scope)
        return _named(node, results)

    def _expand(
        self, body: FunctionDef, step: NodeDef, inputs: Sequence[AnyValue | None], scope: Scope
    ) -> Sequence[AnyValue | None]:
        """Import a function's nodes in place of the node that calls it."""
        if scope.depth >= functions.EXPANSION_DEPTH:
            deepest = functions.EXPANSION_DEPTH
            raise NodeError(f"functions are nested more than {deepest} deep: '{body.name}' calls itself?")
        if len(inputs) > len(body.inputs):
            raise NodeError(f"function '{body.name}' takes {len(body.inputs)} inputs, got {len(inputs)}")
        given = list(inputs) + [None] * (len(body.inputs) - len(inputs))
        nodes = self.expansion.instance(body, step, tuple(value is not None for value in given))
        prefix = f"{scope.prefix}{step.name}/"
        inner = Scope(functions.opsets(body, scope.opsets), None, prefix, scope.depth + 1)
        inner.values.update({name: value for name, value in zip(body.inputs, given, strict=True) if value is not None})
        wanted = {formal: name for formal, name in zip(body.outputs, step.outputs, strict=False) if name}

        def outputs(values: Sequence[AnyValue]) -> list[AnyValue | None]:
            found = dict(zip(wanted, values, strict=True))
            return [found.get(formal) for formal in body.outputs]

        return outputs(self._in_place(outputs, lambda: self._nodes(nodes, list(wanted), inner)))

    def _invalid(
        self, step: NodeDef, scope: Scope, inputs: Sequence[AnyValue | None], error: Exception
    ) -> OnnxImportError:
        """Return why a node is not valid over which a converter raised by mistake; raise if it is valid."""
        text = inference_error(step, scope.opsets.get(step.domain, 1), inputs)
        if text is not None:
            return NodeError(f"the node is not valid: {text}")
        if isinstance(error, MirloError):
            raise error
        said = str(error) if isinstance(error, OpMistake) else f"its converter raised {describe_raised(error)}"
        raise ConverterError(self._problem(step, scope, inputs, NodeError(said))) from error

    def _problem(self, step: NodeDef, scope: Scope, inputs: Sequence[AnyValue | None], error: Exception) -> str:
        listed = ", ".join(f"'{value.name}' {value}" if value else "none" for value in inputs)
        text = str(error).removeprefix(f"{self.model.name}: ")
        name = f"{scope.prefix}{step.name}"
        return f"{self.model.name}: node '{name}' ({step.operator}): {text} [inputs: {listed or 'none'}]"


def _named(node: Node, results: Sequence[Output]) -> Sequence[AnyValue | None]:
    """Return the outputs of a node, with names and with what is known of their elements."""
    values: list[AnyValue | None] = []
    for name, result in zip(node.outputs, results, strict=False):
        value = node.builder.tensor(result) if isinstance(result, ir.Value) else result
        if value is not None and not value.name:
            value.name = name
        values.append(value)
    first = values[0] if values else None
    if isinstance(first, Tensor):
        first.fractions = fractions_of(node, first) if first.fractions is None else first.fractions
        first.partial = first.partial or partial_of(node)
    return values


def _is_text(value: AnyValue) -> bool:
    return isinstance(value, ObjectValue) and value.strings is not None
