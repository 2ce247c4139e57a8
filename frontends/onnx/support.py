"""Search for nodes without a converter before the import, so that all are reported at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.frontends.onnx import functions, schema
from mirlo.frontends.onnx.errors import Unsupported
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.registry import CONVERTERS

if TYPE_CHECKING:
    import onnx


def unsupported_nodes(model: LoadedModel) -> list[Unsupported]:
    """Return nodes of the model, of subgraphs and of called functions that cannot be imported."""
    return list(_Search(model).run())


class _Search:
    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.seen: set[tuple[str, str, str]] = set()
        self.waiting: deque[tuple[onnx.FunctionProto, Mapping[str, int], str, int]] = deque()
        """Nodes to visit of a graph or function, with opsets, name prefix, and function depth."""
        self.depth = 0

    def run(self) -> Iterator[Unsupported]:
        """Search functions in the order of their depth, up to the import's limit."""
        self.waiting.append((self.model.proto.graph.node, self.model.opsets(), "", 0))
        while self.waiting:
            nodes, opsets, prefix, self.depth = self.waiting.popleft()
            if self.depth <= functions.EXPANSION_DEPTH:
                yield from self.nodes(nodes, opsets, prefix)

    def nodes(self, nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int], prefix: str) -> Iterator[Unsupported]:
        for index, node in enumerate(nodes):
            name = prefix + (node.name or f"{node.op_type}_{index}")
            yield from self.node(node, name, opsets)
            for attribute in node.attribute:
                for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    yield from self.nodes(graph.node, opsets, f"{name}/")

    def node(self, node: onnx.NodeProto, name: str, opsets: Mapping[str, int]) -> Iterator[Unsupported]:
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
"""Marks a function body that depends on input types, which are not known yet."""


def _schema_body(domain: str, operator: str, version: int) -> onnx.FunctionProto | None:
    found = schema.schema_of(domain, operator, version)
    if found is None or found.deprecated:
        return None
    if found.has_context_dependent_function:
        return _BY_TYPE
    return functions.static_body(found, version)
