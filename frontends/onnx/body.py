"""The import of a model's nodes by Mirlo's converters: with folding, and branches and loops as regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.choices import Ended, Frame, frames_after
from mirlo.frontends.onnx.fold import fold, fold_fractions, fractions_of, partial_of
from mirlo.frontends.onnx.graph import GraphDef
from mirlo.frontends.onnx.node import Node, NodeImporter, NodeTrait, Skipped
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.values import AnyValue, Converted, LoopIteration, Scope
from mirlo.frontends.tensor import Tensor

MAX_DEFERRED = 16
"""Most operations on sizes in a chain that are made only where the result is needed: each is a dozen calls deeper."""


class Body(NodeImporter):
    """The import of one model."""

    def traits_of(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        return CONVERTERS.traits(domain, operator)

    def converters_of(self, domain: str, operator: str, version: int) -> Sequence[Callable[[Node], Converted]]:
        return CONVERTERS.find(domain, operator, version)

    def folded(self, node: Node, compute: Callable[[], Tensor]) -> Sequence[Tensor] | None:
        deferred = self._deferred(node.inputs)
        results = fold(node, compute) or fold_fractions(node, compute)
        for value in results or ():
            value.deferred = 0 if value.compute is None else deferred + 1
        return results

    def _deferred(self, inputs: Sequence[AnyValue | None]) -> int:
        """Return the number of deferred operations that these values need; make those of long chains."""
        most = 0
        for value in inputs:
            if not isinstance(value, Tensor) or value.made is not None:
                continue
            if value.deferred == MAX_DEFERRED:
                self.full(value)
            else:
                most = max(most, value.deferred)
        return most

    def describe(self, node: Node, result: Tensor) -> None:
        result.fractions = fractions_of(node, result) if result.fractions is None else result.fractions
        result.partial = result.partial or partial_of(node)

    def moved_strings(
        self, node: Node, convert: Callable[[list[AnyValue | None]], Sequence[AnyValue | None]]
    ) -> Sequence[AnyValue | None]:
        from mirlo.frontends.onnx.strings import moved  # few models have strings

        return moved(node, convert)

    def forked(self, frame: Frame) -> list[AnyValue]:
        from mirlo.frontends.onnx import regions  # few models have branches and loops

        step, scope = frame.order[frame.index], frame.scope
        condition = scope.find(step.inputs[0])
        if not isinstance(condition, Tensor):
            raise Skipped
        around, after = self.frames[:-1], frames_after(self.frames)
        last = after[-1] if after else frame
        is_subgraph = last is not self.frames[0]

        def end(flag: bool) -> list[AnyValue]:
            label = f"{step.name}:{'then' if flag else 'else'}/"
            inner = self._scope_of_rest(frame, label)
            self.choices = {**(self.choices or {}), self.place_of(step, inner): flag}
            within = self.frames
            try:
                self.frames = list(around)
                values = self.nodes(frame.order[frame.index :], frame.wanted, inner)
                for outer in after:
                    self.frames = self.frames[:-1]
                    values = self._nodes_after(outer, values, self._scope_of_rest(outer, label))
            except Ended as ended:
                values = ended.values
            finally:
                self.frames = within
            return _as_declared(values, last) if is_subgraph else values

        steps_around = list(self.steps)
        self.steps.append((step, scope))
        values = regions.fork(self, condition, [partial(end, True), partial(end, False)])
        self.steps = steps_around
        if after:
            raise Ended(after[-1], values)
        return values

    def _nodes_after(self, frame: Frame, values: Sequence[AnyValue], scope: Scope) -> list[AnyValue]:
        """Import the nodes that follow the current node of a frame, given the results that replace that node."""
        assert frame.outputs is not None
        step = frame.order[frame.index]
        self.assign(step, frame.outputs(values), scope)
        self.observer.imported(step, scope)
        return self.nodes(frame.order[frame.index + 1 :], frame.wanted, scope)

    @staticmethod
    def _scope_of_rest(frame: Frame, label: str) -> Scope:
        """Return a scope for the rest of a frame in a branch."""
        inner = frame.scope.within(f"{frame.scope.prefix}{label}")
        inner.declared = frame.scope.declared
        return inner

    def conditional(self, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
        from mirlo.frontends.onnx import regions

        return regions.choose(self, condition, then_graph, else_graph)

    def loop(
        self,
        iteration: LoopIteration | GraphDef,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        from mirlo.frontends.onnx import regions

        if not isinstance(iteration, LoopIteration):
            iteration = regions.iteration_of_graph(self, iteration, len(carried))
        return regions.repeat(self, iteration, limit, going, carried, room)


def _as_declared(values: Sequence[AnyValue], frame: Frame) -> list[AnyValue]:
    """Return the results of a subgraph; those of one element get their declared rank, as others may have either."""
    return [_of_shape(value, frame.scope.declared.get(name)) for name, value in zip(frame.wanted, values, strict=True)]


def _of_shape(value: AnyValue, shape: tuple[int, ...] | None) -> AnyValue:
    if shape is None or not isinstance(value, Tensor) or value.type.elements != 1 or any(dim != 1 for dim in shape):
        return value
    return value if value.shape == shape else value.reshape(shape)
