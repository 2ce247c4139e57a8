"""Checkpoints of an import, from which it resumes when a symbol that was made after them is solved for."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.functions import Expansion
from mirlo.frontends.onnx.graph import GraphDef, NodeDef
from mirlo.frontends.onnx.values import ObjectValue, Scope
from mirlo.frontends.sizes import DimSymbols, SymbolMark
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import Kind
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

INTERVAL = 16
"""Nodes from one checkpoint to the next: what is imported again at most, beside the nodes that a solution changes."""


class ResumableImport(Protocol):
    """The state of an import."""

    imported: int
    """Nodes imported so far, those of functions and subgraphs among them."""
    symbols: DimSymbols
    placed: list[Tensor]
    """The tensors with an SSA value that was made for what is known of them, in order."""
    texts: list[ObjectValue]
    """The strings with an SSA value that was made for them, in order."""
    parameters: dict[tuple[object, ...], tuple[str, np.ndarray]]
    problems: list[str]
    steps: list[tuple[NodeDef, Scope]]
    expansion: Expansion
    store: ParameterStore

    def close_regions(self) -> None:
        """Return to the outermost region after an exception."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of an import between two nodes, outside of regions."""

    step: int
    """The node of the graph or function body that comes next."""
    imported: int
    """Nodes that were imported before."""
    operations: int
    symbols: SymbolMark
    placed: int
    texts: int
    parameters: int
    problems: int
    steps: int
    expanded: int
    unrolling: int
    declined: frozenset[GraphDef]
    carried: dict[GraphDef, list[Kind]]

    @classmethod
    def of(cls, body: ResumableImport, step: int) -> Checkpoint:
        """Return the state of an import before a node."""
        expansion = body.expansion
        return cls(
            step,
            body.imported,
            len(ir.InsertionPoint.current.block.operations),
            body.symbols.mark(),
            len(body.placed),
            len(body.texts),
            len(body.parameters),
            len(body.problems),
            len(body.steps),
            expansion.nodes,
            expansion.unrolling,
            frozenset(expansion.declined),
            dict(expansion.carried),
        )

    def restore(self, body: ResumableImport) -> None:
        """Undo what was imported since, and erase its operations."""
        for operation in reversed(list(islice(ir.InsertionPoint.current.block.operations, self.operations, None))):
            operation.operation.erase()
        for tensor in body.placed[self.placed :]:
            tensor.made = None
        for text in body.texts[self.texts :]:
            text.value = None
        for name, _ in list(body.parameters.values())[self.parameters :]:
            body.store.discard(name)
        del body.placed[self.placed :], body.texts[self.texts :]
        del body.problems[self.problems :], body.steps[self.steps :]
        while len(body.parameters) > self.parameters:
            body.parameters.popitem()
        body.symbols.restore(self.symbols)
        body.imported = self.imported
        body.close_regions()
        expansion = body.expansion
        expansion.nodes, expansion.unrolling = self.expanded, self.unrolling
        expansion.declined &= self.declined
        expansion.declined |= self.declined
        expansion.carried.clear()
        expansion.carried.update(self.carried)
