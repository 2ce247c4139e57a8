"""Import of an ONNX model: one function `@main` of relax operators, and the weights in a parameter store.

Nodes without a converter are searched for before, so that all are reported at once. The others are folded or
converted; branches and loops become regions.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry, named_value
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import is_object, object_type
from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.choices import BranchSearch, Choices, Ended, Frame, frames_after
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import (
    OnnxImportError,
    Unsupported,
    UnsupportedOperatorError,
    plural,
    unsupported_report,
)
from mirlo.frontends.onnx.expansion import EXPANSION_DEPTH
from mirlo.frontends.onnx.fold import fold, fold_fractions, fractions_of, partial_of
from mirlo.frontends.onnx.graph import GRAPH, GRAPHS, MICROSOFT, STRING_CODE, GraphDef, NodeDef, ValueDef
from mirlo.frontends.onnx.inputs import InputTypes, Shapes, model_inputs
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.node import Node, NodeImporter, NodeTrait, Observer, Skipped
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.schema_table import schema_of
from mirlo.frontends.onnx.values import AnyValue, Converted, LoopIteration, ObjectValue, Scope, join, kind_of
from mirlo.frontends.sizes import DimSymbols, Solutions, Solved
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import Kind
from mirlo.runtime.params import ParameterStore

MAX_DEFERRED = 16
"""Most operations on sizes in a chain that are made only where the result is needed: each is a dozen calls deeper."""


class Body(NodeImporter):
    """The import of one model."""

    def traits_of(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        return CONVERTERS.traits(domain, operator)

    def converters_of(self, domain: str, operator: str, version: int) -> Sequence[Callable[[Node], Converted]]:
        return CONVERTERS.find(domain, operator, version)

    def folded(self, node: Node, compute: Callable[[], Tensor]) -> Sequence[Tensor] | None:
        deferred = self._deferred(node.inputs)
        results = fold(node, compute) or fold_fractions(node, compute)
        for value in results or ():
            value.deferred = 0 if value.compute is None else deferred + 1
        return results

    def _deferred(self, inputs: Sequence[AnyValue | None]) -> int:
        """Return the number of deferred operations that these values need; make those of long chains."""
        most = 0
        for value in inputs:
            if not isinstance(value, Tensor) or value.made is not None:
                continue
            if value.deferred == MAX_DEFERRED:
                self.full(value)
            else:
                most = max(most, value.deferred)
        return most

    def describe(self, node: Node, result: Tensor) -> None:
        result.fractions = fractions_of(node, result) if result.fractions is None else result.fractions
        result.partial = result.partial or partial_of(node)

    def moved_strings(
        self, node: Node, convert: Callable[[list[AnyValue | None]], Sequence[AnyValue | None]]
    ) -> Sequence[AnyValue | None]:
        from mirlo.frontends.onnx.strings import moved  # few models have strings

        return moved(node, convert)

    def forked(self, frame: Frame) -> list[AnyValue]:
        from mirlo.frontends.onnx import regions  # few models have branches and loops

        step, scope = frame.order[frame.index], frame.scope
        condition = scope.find(step.inputs[0])
        if not isinstance(condition, Tensor):
            raise Skipped
        around, after = self.frames[:-1], frames_after(self.frames)
        last = after[-1] if after else frame
        is_subgraph = last is not self.frames[0]

        def end(flag: bool) -> list[AnyValue]:
            label = f"{step.name}:{'then' if flag else 'else'}/"
            inner = self._scope_of_rest(frame, label)
            self.choices = {**(self.choices or {}), self.place_of(step, inner): flag}
            within = self.frames
            try:
                self.frames = list(around)
                values = self.nodes(frame.order[frame.index :], frame.wanted, inner)
                for outer in after:
                    self.frames = self.frames[:-1]
                    values = self._nodes_after(outer, values, self._scope_of_rest(outer, label))
            except Ended as ended:
                values = ended.values
            finally:
                self.frames = within
            return _as_declared(values, last) if is_subgraph else values

        steps_around = list(self.steps)
        self.steps.append((step, scope))
        values = regions.fork(self, condition, [partial(end, True), partial(end, False)])
        self.steps = steps_around
        if after:
            raise Ended(after[-1], values)
        return values

    def _nodes_after(self, frame: Frame, values: Sequence[AnyValue], scope: Scope) -> list[AnyValue]:
        """Import the nodes that follow the current node of a frame, given the results that replace that node."""
        assert frame.outputs is not None
        step = frame.order[frame.index]
        self.assign(step, frame.outputs(values), scope)
        self.observer.imported(step, scope)
        return self.nodes(frame.order[frame.index + 1 :], frame.wanted, scope)

    @staticmethod
    def _scope_of_rest(frame: Frame, label: str) -> Scope:
        """Return a scope for the rest of a frame in a branch."""
        inner = frame.scope.within(f"{frame.scope.prefix}{label}")
        inner.declared = frame.scope.declared
        return inner

    def conditional(self, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
        from mirlo.frontends.onnx import regions

        return regions.choose(self, condition, then_graph, else_graph)

    def loop(
        self,
        iteration: LoopIteration | GraphDef,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        from mirlo.frontends.onnx import regions

        if not isinstance(iteration, LoopIteration):
            iteration = regions.iteration_of_graph(self, iteration, len(carried))
        return regions.repeat(self, iteration, limit, going, carried, room)


def _as_declared(values: Sequence[AnyValue], frame: Frame) -> list[AnyValue]:
    """Return the results of a subgraph; those of one element get their declared rank, as others may have either."""
    return [_of_shape(value, frame.scope.declared.get(name)) for name, value in zip(frame.wanted, values, strict=True)]


def _of_shape(value: AnyValue, shape: tuple[int, ...] | None) -> AnyValue:
    if shape is None or not isinstance(value, Tensor) or value.type.elements != 1 or any(dim != 1 for dim in shape):
        return value
    return value if value.shape == shape else value.reshape(shape)


def unsupported_nodes(model: LoadedModel) -> list[Unsupported]:
    """Return nodes of the model, of subgraphs and of called functions that cannot be imported."""
    return list(_Search(model).run())


class _Search:
    def __init__(self, model: LoadedModel) -> None:
        self.model = model.content
        self.seen: set[tuple[str, str, str]] = set()
        self.waiting: deque[tuple[Sequence[NodeDef], Mapping[str, int], str, int]] = deque()
        """Nodes to visit of a graph or function, with opsets, name prefix, and function depth."""
        self.depth = 0

    def run(self) -> Iterator[Unsupported]:
        """Search functions in the order of their depth, up to the import's limit."""
        self.waiting.append((self.model.graph.nodes, self.model.opsets, "", 0))
        while self.waiting:
            nodes, opsets, prefix, self.depth = self.waiting.popleft()
            if self.depth <= EXPANSION_DEPTH:
                yield from self.nodes(nodes, opsets, prefix)

    def nodes(self, nodes: Sequence[NodeDef], opsets: Mapping[str, int], prefix: str) -> Iterator[Unsupported]:
        for node in nodes:
            name = f"{prefix}{node.name}"
            yield from self.node(node, name, opsets)
            for attribute in node.attributes:
                if attribute.kind in (GRAPH, GRAPHS):
                    for graph in attribute.graphs:
                        yield from self.nodes(graph.nodes, opsets, f"{name}/")

    def node(self, node: NodeDef, name: str, opsets: Mapping[str, int]) -> Iterator[Unsupported]:
        key = domain, operator, _ = node.domain, node.operator, node.overload
        body = self.model.functions.get(key)
        if body is None:
            version = opsets.get(domain, 0)
            if CONVERTERS.find(domain, operator, version):
                return
            operator_schema = schema_of(domain, operator, version)
            if operator_schema is not None and not operator_schema.deprecated:
                if operator_schema.has_context_dependent_function:  # of input types, which are not known yet
                    return
                body = functions.static_body(operator_schema, version)
        if body is None:
            yield Unsupported(domain, operator, version, name, CONVERTERS.since(domain, operator))
        elif key not in self.seen:
            self.seen.add(key)
            self.waiting.append((body.nodes, functions.opsets(body, opsets), f"{name}/", self.depth + 1))


SHOWN_PROBLEMS = 20
COMPUTED = "the import computed it, or it changes nothing"
UNNEEDED = "no output of the model needs it"


def import_model(
    model: models.Source,
    *,
    shapes: Shapes | None = None,
    context: ir.Context | None = None,
    observer: Observer | None = None,
    rings: bool = False,
) -> tuple[ir.Module, ParameterStore]:
    """Import a model given as a path, bytes or an `onnx.ModelProto`; `observer` receives the outcome of each node.

    `shapes` fixes dims of inputs: `{"input_ids": [1, "sequence"]}`. With `rings`, the caches of attentions with a
    sliding window hold the rows of the window only, each at its position modulo the rows. The module has one function,
    `@main`; its arguments and results carry their names in the model as `relax.name`. The weights are views of the
    file. Raises `OnnxImportError`, which lists everything that is wrong.
    """
    loaded = models.load(model)
    inputs = model_inputs(loaded, shapes)
    _require_converters(loaded)

    def attempt(choices: Choices) -> tuple[ir.Module, ParameterStore]:
        return _solved(loaded, inputs, context, observer, rings, choices)

    (module, store), _ = BranchSearch().run(attempt, {})
    store.files.update(loaded.weights.files)
    return module, store


def find_choices(loaded: LoadedModel, shapes: Shapes | None) -> Choices | None:
    """Return the branches of Ifs of different ranks with which a model can be imported; None if it cannot."""

    def attempt(choices: Choices) -> None:
        _solved(loaded, model_inputs(loaded, shapes), None, None, False, choices)

    try:
        return BranchSearch().run(attempt, {})[1]
    except OnnxImportError:
        return None


def _solved(
    loaded: LoadedModel,
    inputs: InputTypes,
    context: ir.Context | None,
    observer: Observer | None,
    rings: bool,
    choices: Choices,
) -> tuple[ir.Module, ParameterStore]:
    """Import a model, again with each dim that operators require to equal another."""
    solutions = Solutions()
    while True:
        module, store = new_module(loaded, context), ParameterStore()
        context = module.context  # for the next attempt too: one of its own takes as long as some nodes
        try:
            with module.context, ir.Location.file(loaded.name, 0, 0), ir.InsertionPoint(module.body):
                undecided = build_main(loaded, inputs, store, observer, solutions, rings, choices)
            if not undecided:
                return module, store
            solutions.restart_with(undecided)
        except Solved as solved:
            solutions.restart(solved)


def _require_converters(model: LoadedModel) -> None:
    """Check that all operators of a model have converters."""
    missing = unsupported_nodes(model)
    if missing:
        raise UnsupportedOperatorError(unsupported_report(model.name, missing, CONVERTERS.operators()))


def new_module(model: LoadedModel, context: ir.Context | None = None) -> ir.Module:
    """Return an empty module that is named for the model."""
    with context or make_context(), ir.Location.file(model.name, 0, 0):
        return ir.Module.create()


def build_main(
    model: LoadedModel,
    inputs: InputTypes,
    store: ParameterStore,
    observer: Observer | None = None,
    solutions: Solutions | None = None,
    rings: bool = False,
    choices: Choices | None = None,
) -> dict[str, Dim]:
    """Build `@main` at the insertion point; `observer` receives the outcome of each node.

    `solutions` replace symbols of the inputs and of data-dependent sizes; with them, `Solved` is raised for further
    ones. `choices` are those of branches that differ in rank; without them, such branches are an error. Return the
    symbols for broadcast dims with their values.
    """
    types, has_own_shapes = inputs.solved({} if solutions is None else solutions.dims)
    as_declared = model.trusts_declared and has_own_shapes
    windows: dict[str, int] = {}
    if rings:
        from mirlo.frontends.onnx.caches import find_windows, with_rings  # for models with attention only

        types, windows = with_rings(types, find_windows(model.content.graph))
    arguments = [_argument_type(name, input_type, model.name) for name, input_type in types.items()]
    function = func.FuncOp(ENTRY_NAME, (arguments, []))
    mark_entry(function)
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        dims = [dim for t in types.values() if isinstance(t, TensorType) for dim in t.shape]
        taken = set[str]().union(*map(D.symbols_of, dims))
        symbols = DimSymbols(taken, solutions if solutions is not None and solutions.is_open else None)
        body = Body(model, store, symbols, trusts_declared=as_declared, observer=observer)
        body.blocks.append(block)
        body.rings, body.choices = windows, choices
        outputs = _outputs_of(body, model, _scope_of(body, model, types, block))
        if as_declared:
            for value, declared in zip(outputs, model.content.graph.outputs, strict=True):
                _check_output(value, declared, model.name)
        results = [body.ssa(value) for value in outputs]
        func.ReturnOp(results)
    names = [value.name for value in model.content.graph.outputs]
    pages: Mapping[str, str] = {}
    if MICROSOFT in model.content.opsets:
        from mirlo.frontends.onnx.caches import find_paged_inputs  # for models with attention only

        pages = find_paged_inputs(model.content.graph)
    _describe(function, types, names, outputs, results, windows, pages)
    return body.symbols.undecided()


def _scope_of(body: Body, model: LoadedModel, types: Mapping[str, TensorType | Kind], block: ir.Block) -> Scope:
    """Return the scope of the graph, in which the inputs are the arguments of `@main`."""
    scope = Scope(model.content.opsets)
    for argument, (name, input_type) in zip(block.arguments, types.items(), strict=True):
        if isinstance(input_type, Kind):
            scope.define(ObjectValue(name, input_type, argument, region=0))
        else:
            tensor = body.tensor(argument)
            tensor.name, tensor.region = name, 0
            scope.define(tensor)
    return scope


def _outputs_of(body: Body, model: LoadedModel, scope: Scope) -> list[AnyValue]:
    """Convert the nodes of the graph; return its outputs."""
    try:
        outputs = body.graph(model.content.graph, scope)
    except Skipped:
        raise OnnxImportError(_problem_report(body.problems)) from None
    if body.problems:  # an observer replaced values that could not be made
        raise OnnxImportError(_problem_report(body.problems))
    return outputs


class _NodeNames(Observer):
    """Collects the nodes of each scope that is imported."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._scopes: list[Sequence[object]] = []

    def imported(self, step: NodeDef, scope: Scope) -> None:
        if not any(nodes is scope.nodes for nodes in self._scopes[-1:]):
            self._scopes.append(scope.nodes)
            for node in scope.nodes:
                self.found.setdefault(f"{scope.prefix}{node.name}", UNNEEDED)
        self.found[f"{scope.prefix}{step.name}"] = COMPUTED


def model_nodes(model: models.Source, shapes: Shapes | None = None) -> dict[str, str]:
    """Return the importable nodes of a model; for nodes without operators of their own, also the reason."""
    names = _NodeNames()
    import_model(model, shapes=shapes, observer=names)
    return names.found


def _describe(
    function: ir.OpView,
    types: Mapping[str, TensorType | Kind],
    names: Iterable[str],
    outputs: Iterable[AnyValue],
    results: Sequence[ir.Value],
    windows: Mapping[str, int],
    pages: Mapping[str, str],
) -> None:
    """Set the type of `@main`, the names of its arguments and results, and the roles of arguments in attentions."""
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(function.type.inputs, [value.type for value in results])
    )
    if types:
        facts = [
            _named(name, input_type if isinstance(input_type, Kind) else None, windows.get(name), pages.get(name))
            for name, input_type in types.items()
        ]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(facts)
    if results:
        named_results = zip(names, outputs, results, strict=True)
        facts = [_named(name, value.kind if is_object(ssa.type) else None) for name, value, ssa in named_results]
        function.attributes["res_attrs"] = ir.ArrayAttr.get(facts)


def _argument_type(name: str, input_type: TensorType | Kind, model: str) -> ir.Type:
    try:
        return object_type() if isinstance(input_type, Kind) else input_type.to_mlir()
    except OpError as error:
        raise OnnxImportError(f"{model}: input '{name}': {error}") from None


def _named(name: str, kind: Kind | None, window: int | None = None, role: str | None = None) -> ir.Attribute:
    facts: dict[str, ir.Attribute] = {each.name: each.attr for each in ir.DictAttr(named_value(name, window, role))}
    if kind is not None:
        facts["relax.kind"] = ir.StringAttr.get(str(kind))
    return ir.DictAttr.get(facts)


def _check_output(value: AnyValue, declared: ValueDef, model: str) -> None:
    """Check the declared element type of an output against the computed one; warn if the shapes differ."""
    tensor = declared.type
    if not tensor.case or (tensor.case == "tensor" and not tensor.code):
        return
    what = f"{model}: output '{declared.name}'"
    if not isinstance(value, Tensor):
        declared_kind = kind_of(tensor, what)
        if join(declared_kind, value.kind) is None:
            raise OnnxImportError(f"{what} is declared {declared_kind}, but the nodes that compute it make it {value}")
        return
    if tensor.case != "tensor" or tensor.code == STRING_CODE:
        raise OnnxImportError(f"{what} is declared {kind_of(tensor, what)}, but what computes it makes {value}")
    element = onnx_dtype(tensor.code, what).dtype
    shape = None if tensor.dims is None else tuple(dim if isinstance(dim, int) else None for dim in tensor.dims)
    if element is value.type.dtype and (shape is None or _agrees(shape, value.type)):
        return
    dims = "" if shape is None else "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
    text = f"{what} is declared {element}{dims}, but the nodes that compute it make it {value.type}"
    if element is not value.type.dtype:
        raise OnnxImportError(f"{text}; the model's types are inconsistent")
    warnings.warn(f"mirlo: {text}, which is what it will be", stacklevel=2)


def _agrees(shape: tuple[int | None, ...], computed: TensorType) -> bool:
    if len(shape) != computed.rank:
        return False
    pairs = zip(shape, computed.shape, strict=True)
    return all(declared is None or not isinstance(is_, int) or declared == is_ for declared, is_ in pairs)


def _problem_report(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    shown = [f"  {text}" for text in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        shown.append(f"  and {len(problems) - SHOWN_PROBLEMS} more")
    return "\n".join([f"{plural(len(problems), 'node')} cannot be imported:", *shown])
