"""Budget for nodes that functions and loops of a model expand to when they are copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx.errors import NodeError, OnnxImportError
from mirlo.frontends.onnx.graph import NamedNode
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.runtime.kinds import Kind

if TYPE_CHECKING:
    import onnx

Key = tuple[str, str, str]


class TooManyIterations(Exception):
    """Nested loops have more nodes than may be unrolled; the outermost one must not be."""


class Expansion:
    """The nodes that an import has copied so far."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.nodes = 0
        """Imported nodes of functions, branches and loop iterations."""
        self.unrolling = 0
        """Number of loops being unrolled, each inside of the previous one."""
        self.declined: dict[int, onnx.GraphProto] = {}
        """Loop bodies that must not be unrolled, by identity: when an outer loop is imported again with less known,
        they are not tried again."""
        self.carried: dict[int, tuple[onnx.GraphProto, list[Kind]]] = {}
        """What bodies of loops carry, by their identity: an inner loop is imported again with the outer one, and
        need not find out again what changes its sizes."""
        self._instances: dict[tuple[object, ...], tuple[onnx.FunctionProto, list[onnx.NodeProto]]] = {}
        """The nodes of functions called in the same way before, with the function."""

    def count(self, caller: NamedNode) -> None:
        """Count a node inside of the function, loop or branch `caller`."""
        self.nodes += 1
        if self.nodes > functions.EXPANDED_NODES:
            raise NodeError(
                f"'{caller.proto.op_type}' (node '{caller.name}') and the functions and loops around it come to more "
                f"than {functions.EXPANDED_NODES} nodes: functions that call each other several times, and loops with "
                "a known trip count, are copied at each place"
            )

    def instance(self, body: onnx.FunctionProto, step: NamedNode, present: tuple[bool, ...]) -> list[onnx.NodeProto]:
        """Return the nodes of a function; equal calls share those of the model, so that their loops are the same."""
        call = step.proto
        if functions.local(self.model, step.domain, call.op_type, call.overload) is not body:
            return functions.instantiate(body, call, present)
        key = (id(body), present, tuple(attribute.SerializeToString() for attribute in call.attribute))
        if key not in self._instances:
            self._instances[key] = (body, functions.instantiate(body, call, present))
        return self._instances[key][1]


def require_expandable(model: LoadedModel) -> None:
    """Refuse a model whose functions, copied at each call, have too many nodes to compile."""
    if not model.functions:
        return
    sizes: dict[Key, int] = {}
    total = _size(model, model.proto.graph.node, sizes, 0)
    if total - len(model.proto.graph.node) <= functions.EXPANDED_NODES:
        return
    key = min((key for key, size in sizes.items() if size > functions.EXPANDED_NODES // 2), key=sizes.__getitem__,
              default=max(sizes, key=sizes.__getitem__))  # fmt: skip
    raise OnnxImportError(
        f"{model.name}: the functions of the model, copied at each call, come to {total} nodes, more than "
        f"{functions.EXPANDED_NODES}: a call of '{key[1]}' alone to {sizes[key]}; functions that call each other "
        "several times multiply: have the exporter write such a part as a Loop"
    )


def _size(model: LoadedModel, nodes: Sequence[onnx.NodeProto], sizes: dict[Key, int], depth: int) -> int:
    """Return the nodes of a graph or body, with those of the functions that they call."""
    total = 0
    for node in nodes:
        total += 1
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type, node.overload)
        body = model.functions.get(key)
        if body is not None and depth <= functions.EXPANSION_DEPTH:  # deeper ones are refused when they are imported
            if key not in sizes:
                sizes[key] = 0  # recursive functions are refused as well
                sizes[key] = _size(model, body.node, sizes, depth + 1)
            total += sizes[key]
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                total += _size(model, graph.node, sizes, depth)
    return total
