"""Which nodes of a model have no converter: found before anything is imported, so that all can be told at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirlo.frontends.onnx import functions, schema
from mirlo.frontends.onnx.errors import Unsupported
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.registry import CONVERTERS


def unsupported_nodes(model: LoadedModel) -> list[Unsupported]:
    """Nodes of the model, of graphs within nodes and of the functions that are called, that cannot be imported."""
    return list(_Search(model).run())


class _Search:
    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.seen: set[tuple[str, str, str]] = set()
        self.waiting: deque[tuple[Any, Mapping[str, int], str, int]] = deque()
        """Nodes of a graph or function to look at, their operator sets, what their names start with, and how many
        functions they are inside of."""
        self.depth = 0

    def run(self) -> Iterator[Unsupported]:
        """Search functions in the order of their depth: deeper than import goes there is nothing to find."""
        self.waiting.append((self.model.proto.graph.node, self.model.opsets(), "", 0))
        while self.waiting:
            nodes, opsets, prefix, self.depth = self.waiting.popleft()
            if self.depth <= functions.EXPANSION_DEPTH:
                yield from self.nodes(nodes, opsets, prefix)

    def nodes(self, nodes: Sequence[Any], opsets: Mapping[str, int], prefix: str) -> Iterator[Unsupported]:
        for index, node in enumerate(nodes):
            name = prefix + (node.name or f"{node.op_type}_{index}")
            yield from self.node(node, name, opsets)
            for attribute in node.attribute:
                for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    yield from self.nodes(graph.node, opsets, f"{name}/")

    def node(self, node: Any, name: str, opsets: Mapping[str, int]) -> Iterator[Unsupported]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        operator, overload = node.op_type, node.overload
        body = functions.local(self.model, domain, operator, overload)
        if body is None:
            version = opsets.get(domain, 0)
            if CONVERTERS.find(domain, operator, version):
                return
            body = _schema_body(domain, operator, version)
            if body is None:
                yield Unsupported(domain, operator, version, name, CONVERTERS.since(domain, operator))
                return
        key = (domain, operator, overload)
        if body is not _BY_TYPE and key not in self.seen:
            self.seen.add(key)
            self.waiting.append((body.node, functions.opsets(body, opsets), f"{name}/", self.depth + 1))


_BY_TYPE = object()
"""A function body that depends on the types of the inputs: it can only be looked at when they are known."""


def _schema_body(domain: str, operator: str, version: int) -> Any:
    found = schema.schema_of(domain, operator, version)
    if found is None or found.deprecated:
        return None
    if found.has_context_dependent_function:
        return _BY_TYPE
    return functions.static_body(found, version)
