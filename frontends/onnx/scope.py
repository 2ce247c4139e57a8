"""Scopes of value names: one per graph or function body, nested like the graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.frontends.onnx.graph import NodeDef
from mirlo.frontends.onnx.values import AnyValue


class Scope:
    """The values of one graph or function body, by name."""

    def __init__(
        self, opsets: Mapping[str, int], parent: Scope | None = None, prefix: str = "", depth: int = 0
    ) -> None:
        self.opsets = opsets
        self.parent = parent
        self.prefix = prefix
        """Prefix of its node names."""
        self.depth = depth
        """Nesting depth in functions."""
        self.declared: dict[str, tuple[int, ...]] = {}
        """Declared static shapes of values."""
        self.nodes: Sequence[NodeDef] = ()
        """The nodes of the graph or body."""
        self.values: dict[str, AnyValue | None] = {}
        """None stands for a value that could not be made; dependent nodes are skipped."""

    def define(self, value: AnyValue) -> None:
        self.values[value.name] = value

    def find(self, name: str) -> AnyValue | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise KeyError(name)

    def outer_names(self) -> set[str]:
        names: set[str] = set()
        scope = self.parent
        while scope is not None:
            names |= scope.values.keys()
            scope = scope.parent
        return names

    def within(self, prefix: str) -> Scope:
        """Return a scope for a subgraph of a node."""
        return Scope(self.opsets, self, prefix, self.depth)
