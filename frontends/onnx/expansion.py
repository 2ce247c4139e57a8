"""Budget for nodes that functions and loops of a model expand to when they are copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx.errors import NodeError, OnnxImportError
from mirlo.frontends.onnx.graph import FLOATS, AttributeDef, FunctionDef, GraphDef, NodeDef
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.runtime.kinds import Kind

Key = tuple[str, str, str]


class TooManyIterations(Exception):
    """Nested loops have more nodes than may be unrolled; the outermost one must not be."""


class Expansion:
    """The nodes that an import has copied so far."""

    def __init__(self, defined: Mapping[Key, FunctionDef]) -> None:
        self.defined = defined
        """The model's own functions."""
        self.nodes = 0
        """Imported nodes of functions, branches and loop iterations."""
        self.unrolling = 0
        """Number of loops being unrolled, each inside of the previous one."""
        self.declined: set[GraphDef] = set()
        """Loop bodies that must not be unrolled: when an outer loop is imported again with less known,
        they are not tried again."""
        self.carried: dict[GraphDef, list[Kind]] = {}
        """What bodies of loops carry: an inner loop is imported again with the outer one, and
        need not find out again what changes its sizes."""
        self._instances: dict[tuple[object, ...], tuple[NodeDef, ...]] = {}
        """The nodes of functions called in the same way before."""

    def count(self, operator: str, name: str) -> None:
        """Count a node inside of a function, loop or branch: a node of this name."""
        self.nodes += 1
        if self.nodes > functions.EXPANDED_NODES:
            raise NodeError(
                f"'{operator}' (node '{name}') and the functions and loops around it come to more "
                f"than {functions.EXPANDED_NODES} nodes: functions that call each other several times, and loops with "
                "a known trip count, are copied at each place"
            )

    def instance(self, body: FunctionDef, call: NodeDef, present: tuple[bool, ...]) -> tuple[NodeDef, ...]:
        """Return the nodes of a function; equal calls share those of the model, so that their loops are the same."""
        if self.defined.get(body.key) is not body:
            return functions.instantiate(body, call, present)
        key = (body, present, *map(_key, call.attributes))
        if key not in self._instances:
            self._instances[key] = functions.instantiate(body, call, present)
        return self._instances[key]


def _key(attribute: AttributeDef) -> tuple[object, ...]:
    """Return what equal attributes have in common; -0.0 is not 0.0."""
    value = attribute.value
    is_number = isinstance(value, float) or attribute.kind == FLOATS
    return attribute.name, attribute.kind, repr(value) if is_number else value


def require_expandable(model: LoadedModel) -> None:
    """Refuse a model whose functions, copied at each call, have too many nodes to compile."""
    sizes: dict[Key, int] = {}
    nodes = model.content.graph.nodes
    total = _size(model.content.functions, nodes, sizes, 0)
    if total - len(nodes) <= functions.EXPANDED_NODES:
        return
    key = min((key for key, size in sizes.items() if size > functions.EXPANDED_NODES // 2), key=sizes.__getitem__,
              default=max(sizes, key=sizes.__getitem__))  # fmt: skip
    raise OnnxImportError(
        f"{model.name}: the functions of the model, copied at each call, come to {total} nodes, more than "
        f"{functions.EXPANDED_NODES}: a call of '{key[1]}' alone to {sizes[key]}; functions that call each other "
        "several times multiply: have the exporter write such a part as a Loop"
    )


def _size(defined: Mapping[Key, FunctionDef], nodes: Sequence[NodeDef], sizes: dict[Key, int], depth: int) -> int:
    """Return the nodes of a graph or body, with those of the functions that they call."""
    total = 0
    for node in nodes:
        total += 1
        key = (node.domain, node.operator, node.overload)
        body = defined.get(key)
        if body is not None and depth <= functions.EXPANSION_DEPTH:  # deeper ones are refused when they are imported
            if key not in sizes:
                sizes[key] = 0  # recursive functions are refused as well
                sizes[key] = _size(defined, body.nodes, sizes, depth + 1)
            total += sizes[key]
        for graph in node.graphs:
            total += _size(defined, graph.nodes, sizes, depth)
    return total
