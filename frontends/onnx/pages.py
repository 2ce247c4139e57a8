"""Inputs that `PagedAttention` reads: caches in pages, and what says where the rows of each sequence are."""

from __future__ import annotations

from mirlo.frontends.onnx.graph import GraphDef
from mirlo.runtime.names import PAGE_ROLES

OPERATOR, DOMAIN = "PagedAttention", "com.microsoft"
OPERANDS = dict(zip((3, 4, 5, 6, 7, 10, 16), ("cache", "cache", *PAGE_ROLES[1:]), strict=True))
"""What an operand is, by its number."""
_VIEWS = ("Cast", "Identity")
"""Operators whose result says what their operand says."""


def find_paged_inputs(graph: GraphDef) -> dict[str, str]:
    """Return what inputs of the graph are to attentions with caches in pages, by their names: one of `PAGE_ROLES`.

    An input that is two of these is left out.
    """
    inputs = {value.name for value in graph.inputs}
    sources = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.operator in _VIEWS and node.inputs}
    roles: dict[str, set[str]] = {}
    for node in graph.nodes:
        if node.operator != OPERATOR or node.domain != DOMAIN:
            continue
        for place, role in OPERANDS.items():
            name = node.inputs[place] if place < len(node.inputs) else ""
            passed = set[str]()  # the nodes of a hostile file may form a cycle
            while name in sources and name not in inputs | passed:
                passed.add(name)
                name = sources[name]
            if name in inputs:
                roles.setdefault(name, set()).add(role)
    return {name: its.pop() for name, its in roles.items() if len(its) == 1}
