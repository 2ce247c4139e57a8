"""The import of a model's nodes by Mirlo's converters: with folding, and branches and loops as regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx import regions
from mirlo.frontends.onnx.fold import fold, fold_fractions, fractions_of, partial_of
from mirlo.frontends.onnx.graph import GraphDef
from mirlo.frontends.onnx.node import Node, NodeImporter, NodeTrait
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.strings import moved
from mirlo.frontends.onnx.values import AnyValue, Converted, LoopIteration
from mirlo.frontends.tensor import Tensor


class Body(NodeImporter):
    """The import of one model."""

    def traits_of(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        return CONVERTERS.traits(domain, operator)

    def converters_of(self, domain: str, operator: str, version: int) -> Sequence[Callable[[Node], Converted]]:
        return CONVERTERS.find(domain, operator, version)

    def folded(self, node: Node, compute: Callable[[], Tensor]) -> Sequence[Tensor] | None:
        return fold(node, compute) or fold_fractions(node, compute)

    def describe(self, node: Node, result: Tensor) -> None:
        result.fractions = fractions_of(node, result) if result.fractions is None else result.fractions
        result.partial = result.partial or partial_of(node)

    def moved_strings(
        self, node: Node, convert: Callable[[list[AnyValue | None]], Sequence[AnyValue | None]]
    ) -> Sequence[AnyValue | None]:
        return moved(node, convert)

    def fork(self, condition: Tensor, branches: Sequence[Callable[[], list[AnyValue]]]) -> list[AnyValue]:
        return regions.fork(self, condition, branches)

    def conditional(self, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
        return regions.choose(self, condition, then_graph, else_graph)

    def loop(
        self,
        iteration: LoopIteration | GraphDef,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        if not isinstance(iteration, LoopIteration):
            iteration = regions.iteration_of_graph(self, iteration, len(carried))
        return regions.repeat(self, iteration, limit, going, carried, room)
