"""Search for nodes without a converter before the import, so that all are reported at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx.errors import Unsupported
from mirlo.frontends.onnx.expansion import EXPANSION_DEPTH
from mirlo.frontends.onnx.graph import GRAPH, GRAPHS, NodeDef
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.schema_table import schema_of


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
