"""Topological order of the nodes of a graph; invalid graphs are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mirlo.frontends.onnx.errors import OnnxImportError, list_names, nearest
from mirlo.frontends.onnx.graph import GRAPH, GRAPHS, GraphDef, NodeDef


def steps(
    nodes: Sequence[NodeDef],
    own: Iterable[str],
    outer: Iterable[str],
    wanted: Sequence[str],
    model: str,
    prefix: str = "",
) -> list[NodeDef]:
    """Return the nodes that the wanted values need, in topological order.

    `own` are the names of the graph's inputs and initializers, `outer` those of the enclosing graphs; `prefix` comes
    before names of nodes in messages.
    """
    defined = set(own)
    producer: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for output in node.outputs:
            if output in producer or output in defined:
                before = f"node '{prefix}{nodes[producer[output]].name}'" if output in producer else _GIVEN
                raise OnnxImportError(
                    f"{model}: the name '{output}' is defined twice: by node '{prefix}{node.name}' ({node.operator}) "
                    f"and by {before}; names of values must be unique"
                )
            if output:
                producer[output] = at
    known = defined.union(outer).difference(producer)  # what this graph makes hides names of the graphs around it
    for name in wanted:
        if name not in producer and name not in known:
            raise OnnxImportError(f"{model}: output '{name}' is made by no node: {nearest(name, [*producer, *known])}")
    return _ordered(nodes, producer, known, wanted, model, prefix)


_GIVEN = "an input or initializer"


def _ordered(
    nodes: Sequence[NodeDef], producer: dict[str, int], known: set[str], wanted: Sequence[str], model: str, prefix: str
) -> list[NodeDef]:
    """Order nodes depth-first from the wanted values.

    There is no recursion: a graph may be tens of thousands of nodes deep.
    """
    done: set[int] = set()
    open_nodes: dict[int, Iterator[str]] = {}
    reads: dict[int, list[str]] = {}
    for root in wanted:
        stack = [producer[root]] if root in producer else []
        while stack:
            current = stack[-1]
            if current in done:
                stack.pop()
                continue
            rest = open_nodes.get(current)
            if rest is None:
                reads[current] = read_names(nodes[current])
                rest = open_nodes[current] = iter(reads[current])
            for name in rest:
                if name in known:
                    continue
                if name not in producer:
                    raise _undefined(nodes[current], name, [*producer, *known], model, prefix)
                if producer[name] in open_nodes and producer[name] not in done:
                    raise _cycle([f"{prefix}{nodes[i].name}" for i in stack[stack.index(producer[name]) :]], model)
                if producer[name] not in done:
                    stack.append(producer[name])
                    break
            else:
                done.add(current)
                stack.pop()
    order = sorted(done)
    position = {index: at for at, index in enumerate(order)}
    if all(position.get(producer.get(n, -1), -1) < at for at, i in enumerate(order) for n in reads[i]):
        return [nodes[i] for i in order]
    return [nodes[i] for i in _sorted(order, reads, producer)]


def _sorted(needed: Sequence[int], reads: dict[int, list[str]], producer: dict[str, int]) -> list[int]:
    """Sort nodes that the file does not list in topological order, as it should."""
    waiting = {i: {producer[n] for n in reads[i] if n in producer} for i in needed}
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


def read_names(node: NodeDef) -> list[str]:
    """Return the names that a node reads: its inputs, and what its subgraphs capture."""
    names = [name for name in node.inputs if name]
    for attribute in node.attributes:
        if attribute.kind in (GRAPH, GRAPHS):
            for graph in attribute.graphs:
                names += captured(graph)
    return names


def captured(graph: GraphDef) -> list[str]:
    """Return the names that a graph uses but does not define."""
    own = {value.name for value in graph.inputs} | {tensor.name for tensor in graph.initializers}
    own.update(output for node in graph.nodes for output in node.outputs)
    reads = [name for node in graph.nodes for name in read_names(node)] + [value.name for value in graph.outputs]
    return [name for name in reads if name not in own]


def _undefined(node: NodeDef, name: str, known: list[str], model: str, prefix: str) -> OnnxImportError:
    return OnnxImportError(
        f"{model}: node '{prefix}{node.name}' ({node.operator}) reads '{name}', which nothing defines: "
        f"{nearest(name, known)}"
    )


def _cycle(loop: list[str], model: str) -> OnnxImportError:
    return OnnxImportError(f"{model}: the graph has a cycle: {list_names(loop[::-1], 10)} depend on one another")
