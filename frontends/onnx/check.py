"""Check of which nodes of a model can be imported, and why others cannot: no problem hides later ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.choices import Choices
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import OnnxImportError, by_domain, domain_name, what_is_supported
from mirlo.frontends.onnx.graph import ModelDef, NodeDef
from mirlo.frontends.onnx.importer import build_main, find_choices, new_module, unsupported_nodes
from mirlo.frontends.onnx.inputs import Shapes, model_inputs
from mirlo.frontends.onnx.node import Observer
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.values import AnyValue, Scope
from mirlo.frontends.onnx.writing import inferred_values
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

SUPPORTED, UNSUPPORTED, REFUSED, UNKNOWN, UNUSED = "supported", "unsupported", "refused", "unknown", "unused"
STATES = {
    SUPPORTED: "is imported",
    UNSUPPORTED: "its operator is not supported, in this version of the operator set",
    REFUSED: "its operator is supported, but not as it is used here",
    UNKNOWN: "it reads the result of an unsupported node, whose type the model does not declare",
    UNUSED: "no output of the model needs it, so that it is left out",
}


@dataclass(frozen=True)
class NodeCheck:
    """The result for one node."""

    name: str
    operator: str
    domain: str
    opset: int
    state: str
    reason: str = ""
    assumes: str = ""
    """A condition on sizes or values that each call checks, because the import depends on it."""

    @property
    def is_supported(self) -> bool:
        """Return whether the node does not prevent the import."""
        return self.state in (SUPPORTED, UNUSED)


@dataclass
class ModelCheck:
    """The result for a model."""

    model: str
    nodes: list[NodeCheck]
    problem: str | None = None
    """What is wrong with the model as a whole, not with one node."""
    module: ir.Module | None = None
    """The imported module, if nothing is wrong."""
    params: ParameterStore | None = None

    @property
    def counts(self) -> Counter[str]:
        return Counter(node.state for node in self.nodes)

    @property
    def is_clean(self) -> bool:
        return self.problem is None and not self.bad()

    def bad(self) -> list[NodeCheck]:
        """Return the nodes that prevent the import."""
        return [node for node in self.nodes if not node.is_supported]


def check_model(model: models.Source, *, shapes: Shapes | None = None) -> ModelCheck:
    """Import as much of a model as possible; nodes after a failing one are checked too."""
    loaded = models.load(model)
    check = _checked(loaded, shapes, None)
    if not check.is_clean and (choices := find_choices(loaded, shapes)):
        check = _checked(loaded, shapes, choices)
    return check


def _checked(loaded: models.LoadedModel, shapes: Shapes | None, choices: Choices | None) -> ModelCheck:
    """Import as much of a model as possible, with these branches of Ifs that differ in rank."""
    watch = _Watch(_declared_types(loaded.content))
    known = by_domain(CONVERTERS.operators())
    watch.unsupported = {
        item.node: what_is_supported(item.domain, item.operator, item.supported_since, known)
        for item in unsupported_nodes(loaded)
    }
    module, params, problem = new_module(loaded), ParameterStore(), None
    with module.context, ir.Location.file(loaded.name, 0, 0), ir.InsertionPoint(module.body):
        try:
            build_main(loaded, model_inputs(loaded, shapes), params, watch, choices=choices)
        except OnnxImportError as error:
            # The problems of nodes are reported with them.
            problem = None if watch.failed_nodes() else str(error)
    nodes = [watch.report(node, loaded.content.opsets) for node in loaded.content.graph.nodes]
    check = ModelCheck(loaded.name, nodes, problem)
    if check.is_clean:
        check.module, check.params = module, params
    return check


@dataclass
class _Watch(Observer):
    """Collects the outcome of nodes, and gives outputs of failed ones their declared types."""

    types: dict[str, TensorType]
    unsupported: dict[str, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    problems: dict[int, str] = field(default_factory=dict)
    skipped_nodes: dict[int, str] = field(default_factory=dict)
    inner: list[tuple[str, str]] = field(default_factory=list)
    """Problems of nodes in function bodies and subgraphs, by the name of the outer node."""
    assumptions: dict[str, str] = field(default_factory=dict)
    """By the outputs of nodes."""

    def imported(self, step: NodeDef, scope: Scope) -> None:
        if _is_top(scope):
            self.done.add(step.index)

    def failed(self, step: NodeDef, scope: Scope, problem: str) -> Sequence[AnyValue | None]:
        if not _is_top(scope):
            self.inner.append((f"{scope.prefix}{step.name}", problem))
            return super().failed(step, scope, problem)
        self.problems[step.index] = problem
        return self._stand_ins(step)

    def skipped(self, step: NodeDef, scope: Scope) -> Sequence[AnyValue | None]:
        if not _is_top(scope):
            return super().skipped(step, scope)
        inside = [f"'{name}' in it: {text}" for name, text in self.inner if name.startswith(f"{step.name}/")]
        if inside:
            self.problems[step.index] = "; ".join(inside)
        else:
            missing = [name for name in step.inputs if name and scope.find(name) is None]
            self.skipped_nodes[step.index] = ", ".join(f"'{name}'" for name in missing)
        return self._stand_ins(step)

    def assumed(self, outputs: Sequence[str], text: str) -> None:
        self.assumptions.update(dict.fromkeys(outputs, text))

    def _stand_ins(self, step: NodeDef) -> list[AnyValue | None]:
        return [self._stand_in(name) for name in step.outputs]

    def _stand_in(self, name: str) -> Tensor | None:
        declared = self.types.get(name)
        if declared is None:
            return None
        try:
            kind = declared.to_mlir()
        except OpError:  # shape inference of ONNX gives sizes that no memory holds
            return None
        op = ir.Operation.create("builtin.unrealized_conversion_cast", results=[kind])
        assert self.builder is not None  # nodes are being imported
        tensor = self.builder.tensor(op.result)
        tensor.name = name
        return tensor

    def failed_nodes(self) -> bool:
        return bool(self.problems or self.skipped_nodes)

    def report(self, step: NodeDef, opsets: Mapping[str, int]) -> NodeCheck:
        inside = [text for name, text in self.unsupported.items() if name.startswith(f"{step.name}/")]
        if step.name in self.unsupported:
            state, reason = UNSUPPORTED, self.unsupported[step.name]
        elif step.index in self.problems:
            state, reason = (UNSUPPORTED if inside else REFUSED), self.problems[step.index]
        elif step.index in self.skipped_nodes:
            state, reason = UNKNOWN, f"depends on {self.skipped_nodes[step.index]}"
        else:
            state, reason = (SUPPORTED if step.index in self.done else UNUSED), ""
        assumes = next((self.assumptions[name] for name in outputs_inside(step) if name in self.assumptions), "")
        domain = domain_name(step.domain)
        return NodeCheck(step.name, step.operator, domain, opsets.get(step.domain, 0), state, reason, assumes)


def outputs_inside(step: NodeDef) -> Iterator[str]:
    """Yield the outputs of a node, and those of the nodes in its graphs."""
    yield from step.outputs
    for graph in step.graphs:
        for inner in graph.nodes:
            yield from outputs_inside(inner)


def _is_top(scope: Scope) -> bool:
    return scope.parent is None and not scope.depth


def _declared_types(model: ModelDef) -> dict[str, TensorType]:
    """Return the static types of values that the model declares or ONNX's inference finds."""
    types = {}
    for value in inferred_values(model):
        dims = value.type.static_dims
        if not value.type.code or dims is None:
            continue
        try:
            element = onnx_dtype(value.type.code, value.name)
        except OnnxImportError:
            continue
        types[value.name] = TensorType(dims, element.dtype)
    return types
