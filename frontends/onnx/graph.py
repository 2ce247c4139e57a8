"""Topological order of the nodes of a graph; invalid graphs are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import OnnxImportError, list_names, nearest

if TYPE_CHECKING:
    import onnx

_GRAPH, _GRAPHS = 5, 10


@dataclass(frozen=True)
class NamedNode:
    """A node, with its name in messages."""

    proto: onnx.NodeProto
    name: str
    index: int

    @property
    def domain(self) -> str:
        return "" if self.proto.domain == "ai.onnx" else self.proto.domain


def steps(
    nodes: Sequence[onnx.NodeProto],
    own: Iterable[str],
    outer: Iterable[str],
    wanted: Sequence[str],
    model: str,
    prefix: str = "",
) -> list[NamedNode]:
    """Return the nodes that the wanted values need, in topological order.

    `own` are the names of the graph's inputs and initializers, `outer` those of the enclosing graphs.
    """
    defined = set(own)
    made = [
        NamedNode(node, prefix + (node.name or f"{node.op_type}_{index}"), index) for index, node in enumerate(nodes)
    ]
    producer: dict[str, int] = {}
    for step in made:
        for output in step.proto.output:
            if output in producer or output in defined:
                other = f"node '{made[producer[output]].name}'" if output in producer else "an input or initializer"
                raise OnnxImportError(
                    f"{model}: the name '{output}' is defined twice: by node '{step.name}' ({step.proto.op_type}) "
                    f"and by {other}; names of values must be unique"
                )
            if output:
                producer[output] = step.index
    before = defined.union(outer).difference(producer)  # what this graph makes hides names of the graphs around it
    for name in wanted:
        if name not in producer and name not in before:
            raise OnnxImportError(f"{model}: output '{name}' is made by no node: {nearest(name, [*producer, *before])}")
    return _ordered(made, producer, before, wanted, model)


def _ordered(
    made: list[NamedNode], producer: dict[str, int], before: set[str], wanted: Sequence[str], model: str
) -> list[NamedNode]:
    """Order nodes depth-first from the wanted values.

    There is no recursion: a graph may be tens of thousands of nodes deep.
    """
    done: set[int] = set()
    open_nodes: dict[int, Iterator[str]] = {}
    for root in wanted:
        stack = [producer[root]] if root in producer else []
        while stack:
            current = stack[-1]
            if current in done:
                stack.pop()
                continue
            reads = open_nodes.get(current)
            if reads is None:
                reads = open_nodes[current] = iter(read_names(made[current].proto))
            for name in reads:
                if name in before:
                    continue
                if name not in producer:
                    raise _undefined(made[current], name, [*producer, *before], model)
                if producer[name] in open_nodes and producer[name] not in done:
                    raise _cycle(made, stack, producer[name], model)
                if producer[name] not in done:
                    stack.append(producer[name])
                    break
            else:
                done.add(current)
                stack.pop()
    order = sorted(done)
    position = {index: at for at, index in enumerate(order)}
    if all(position.get(producer.get(n, -1), -1) < at for at, i in enumerate(order) for n in read_names(made[i].proto)):
        return [made[i] for i in order]
    return [made[i] for i in _sorted(order, made, producer)]


def _sorted(needed: Sequence[int], made: list[NamedNode], producer: dict[str, int]) -> list[int]:
    """Sort nodes that the file does not list in topological order, as it should."""
    waiting = {i: {producer[n] for n in read_names(made[i].proto) if n in producer} for i in needed}
    users: dict[int, list[int]] = {}
    for index, sources in waiting.items():
        for source in sources:
            users.setdefault(source, []).append(index)
    ready = [i for i in needed if not waiting[i]]
    order: list[int] = []
    for index in ready:
        order.append(index)
        for user in users.get(index, []):
            waiting[user].discard(index)
            if not waiting[user]:
                ready.append(user)
    return order


def read_names(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads: its inputs, and what its subgraphs capture."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            names += captured(attribute.g)
        elif attribute.type == _GRAPHS:
            names += [name for graph in attribute.graphs for name in captured(graph)]
    return names


def captured(graph: onnx.GraphProto) -> list[str]:
    """Return the names that a graph uses but does not define."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(output for node in graph.node for output in node.output)
    reads = [name for node in graph.node for name in read_names(node)] + [value.name for value in graph.output]
    return [name for name in reads if name not in own]


def _undefined(step: NamedNode, name: str, known: list[str], model: str) -> OnnxImportError:
    return OnnxImportError(
        f"{model}: node '{step.name}' ({step.proto.op_type}) reads '{name}', which nothing defines: "
        f"{nearest(name, known)}"
    )


def _cycle(made: list[NamedNode], stack: list[int], start: int, model: str) -> OnnxImportError:
    loop = [made[i].name for i in stack[stack.index(start) :]]
    loop.reverse()
    return OnnxImportError(f"{model}: the graph has a cycle: {list_names(loop, 10)} depend on one another")
