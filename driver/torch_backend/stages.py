"""A graph as stages: what cannot be compiled runs eagerly, the rest is compiled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from mirlo.driver.torch_backend.draws import draw_first, without_states
from mirlo.driver.torch_backend.graph import compile_graph
from mirlo.driver.torch_backend.options import BackendOptions
from mirlo.driver.torch_backend.partition import (
    Stage,
    is_left,
    is_size,
    operator_of,
    partition,
    views_of_results,
    without_tokens,
)
from mirlo.frontends.torch.draws import is_random
from mirlo.frontends.torch.errors import UnsupportedAten
from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    import torch

RunGraph: TypeAlias = Callable[[Sequence["torch.Tensor | torch.SymInt"]], Sequence[object]]


class StagedGraph:
    """A graph that is compiled as far as it can be."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        fake_inputs: Sequence[torch.Tensor | torch.SymInt],
        frozen: Mapping[int, torch.Tensor],
        settings: BackendOptions,
        arenas: ArenaPool,
    ) -> None:
        import torch

        self._settings, self._arenas = settings, arenas
        self._root = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        self._inputs = [node for node in self._root.graph.nodes if node.op == "placeholder"]
        self._fakes = dict(zip(self._inputs, fake_inputs, strict=True))
        self._frozen = {self._inputs[index]: tensor for index, tensor in frozen.items()}
        self._compiled: dict[object, RunGraph] = {}
        self._refused: dict[torch.fx.Node, str] = {}
        without_tokens(self._root.graph)
        views = views_of_results(self._root.graph)
        drawn = [*without_states(self._root.graph), *draw_first(self._root.graph)]
        kept = [node for node in self._root.graph.nodes if is_random(node) or is_left(node)]
        self._eager = {*views, *drawn, *kept}
        output = next(node for node in self._root.graph.nodes if node.op == "output")
        self._results: Sequence[object] = output.args[0]
        self._stages = self._compile()
        self._runs = [(stage, self._compiled.get(stage.key, _run_eagerly(stage))) for stage in self._stages]
        self._report()

    def __call__(self, inputs: Sequence[torch.Tensor | torch.SymInt]) -> list[object]:
        """Run the graph."""
        values: dict[object, object] = dict(zip(self._inputs, inputs, strict=True))
        for stage, run in self._runs:
            arguments: list[Any] = [values[node] for node in stage.inputs]
            values.update(zip(stage.outputs, run(arguments), strict=True))
        return [values.get(value, value) for value in self._results]

    def _compile(self) -> list[Stage]:
        """Return the stages, all of which are compiled that can be."""
        while True:
            stages = partition(self._root.graph, self._root, self._eager)
            refused = [origin for stage in stages if stage.is_compiled for origin in self._compile_stage(stage)]
            if not refused:
                return stages
            self._eager.update(refused)

    def _compile_stage(self, stage: Stage) -> list[torch.fx.Node]:
        """Compile a stage; return the nodes that must be left out before it can be."""
        if stage.key in self._compiled:
            return []
        frozen = {index: self._frozen[node] for index, node in enumerate(stage.inputs) if node in self._frozen}
        fakes = [self._fakes.get(node, node.meta.get("val")) for node in stage.inputs]
        try:
            arguments, checks = self._settings.compile_arguments(), self._settings.checks
            self._compiled[stage.key] = compile_graph(stage.module, fakes, frozen, arguments, self._arenas, checks)
        except MirloError as problem:
            if self._settings.strict:
                raise
            origins = problem.origins if isinstance(problem, UnsupportedAten) else ()
            nodes = [operator_of(stage.origins[name]) for name in origins if name in stage.origins]
            if not nodes or any(is_size(node) or node in self._eager for node in nodes):
                nodes = list(stage.origins.values())
            self._refused.update(dict.fromkeys(nodes, str(problem)))
            return nodes
        return []

    def _report(self) -> None:
        """Warn of operators that were refused."""
        if not self._refused:
            return
        reason = next(iter(self._refused.values()))
        if not self._compiled:
            warnings.warn(f"mirlo: a graph runs eagerly: {reason}", stacklevel=2)
            return
        left = list(dict.fromkeys(str(node.target) for node in self._refused))
        nodes = sum(node.op == "call_function" for node in self._root.graph.nodes)
        warnings.warn(
            f"mirlo: {len(self._refused)} of {nodes} operators run eagerly, between compiled parts of the graph "
            f"({', '.join(left)}): {reason}",
            stacklevel=2,
        )


def _run_eagerly(stage: Stage) -> RunGraph:
    """Return what runs a stage by PyTorch."""

    def run(inputs: Sequence[torch.Tensor | torch.SymInt]) -> Sequence[object]:
        results: Sequence[object] = stage.module(*inputs)
        return results

    return run
