"""A graph as stages: operators that cannot be compiled run eagerly, the rest is compiled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mirlo.extend.runtime import ArenaPool, MirloError
from mirlo_torch.backend.draws import draw_first, without_states
from mirlo_torch.backend.graph import compile_graph
from mirlo_torch.backend.options import BackendOptions
from mirlo_torch.backend.partition import (
    Stage,
    is_left,
    is_size,
    operator_of,
    partition,
    views_of_results,
    without_tokens,
)
from mirlo_torch.draws import is_random
from mirlo_torch.errors import UnsupportedAten

if TYPE_CHECKING:
    import torch

RunGraph: TypeAlias = Callable[[Sequence["torch.Tensor | torch.SymInt"]], Sequence[object]]


class _Slot(NamedTuple):
    """A result of a stage that is a value of the graph."""

    number: int


class _StageRun(NamedTuple):
    """A stage with the indices of its operands and results."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    last_used: Sequence[int]
    """The inputs that no later stage reads and that are not results."""
    run: RunGraph


class StagedGraph:
    """A compiled graph without the nodes of the trace, which are freed with everything that they refer to."""

    def __init__(self, runs: Sequence[_StageRun], results: Sequence[object]) -> None:
        self._runs, self._results = runs, results

    def __call__(self, inputs: list[torch.Tensor | torch.SymInt]) -> list[object]:
        """Run the graph on a list of inputs, which is emptied: each is freed after its last stage."""
        values: dict[object, object] = dict(enumerate(inputs))
        inputs.clear()
        for each in self._runs:
            arguments: list[Any] = [values[number] for number in each.inputs]
            for number in each.last_used:
                del values[number]
            values.update(zip(each.outputs, each.run(arguments), strict=True))
        return [values[result.number] if isinstance(result, _Slot) else result for result in self._results]


def compile_stages(
    graph: torch.fx.GraphModule,
    fake_inputs: Sequence[torch.Tensor | torch.SymInt],
    frozen: Mapping[int, torch.Tensor],
    settings: BackendOptions,
    arenas: ArenaPool,
    is_backward: bool = False,
) -> StagedGraph:
    """Compile a graph in stages, with the inputs `frozen` as constants and arenas from a pool."""
    return _StageCompiler(graph, fake_inputs, frozen, settings, arenas, is_backward).staged()


class _StageCompiler:
    """Divides a graph into stages and compiles them."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        fake_inputs: Sequence[torch.Tensor | torch.SymInt],
        frozen: Mapping[int, torch.Tensor],
        settings: BackendOptions,
        arenas: ArenaPool,
        is_backward: bool,
    ) -> None:
        import torch

        self._settings, self._arenas = settings, arenas
        self._root = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        self._inputs = [node for node in self._root.graph.nodes if node.op == "placeholder"]
        self._fakes = dict(zip(self._inputs, fake_inputs, strict=True))
        self._frozen = {self._inputs[index]: tensor for index, tensor in frozen.items()}
        # PyTorch names inputs of the forward graph so in both: the caller holds them. It frees what is saved besides.
        self._freed = [node for node in self._inputs if is_backward and not node.name.startswith("primals")]
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
        self._report()

    def staged(self) -> StagedGraph:
        """Return the compiled stages, in which values have numbers."""
        numbers: dict[object, int] = {node: number for number, node in enumerate(self._inputs)}
        for node in (node for stage in self._stages for node in stage.outputs):
            numbers.setdefault(node, len(numbers))
        kept, runs = set(self._results), []
        for stage in reversed(self._stages):
            last_used = [numbers[node] for node in stage.inputs if node not in kept]
            kept.update(stage.inputs)
            inputs, outputs = ([numbers[node] for node in nodes] for nodes in (stage.inputs, stage.outputs))
            run = self._compiled.get(stage.key, _run_eagerly(stage.module))
            runs.append(_StageRun(inputs, outputs, last_used, run))
            for node in stage.module.graph.nodes:
                node.meta = {}
        return StagedGraph(runs[::-1], [_Slot(numbers[each]) if each in numbers else each for each in self._results])

    def _compile(self) -> list[Stage]:
        """Return the stages, each compiled if possible."""
        while True:
            stages = partition(self._root.graph, self._root, self._eager, self._freed)
            refused = [origin for stage in stages if stage.is_compiled for origin in self._compile_stage(stage)]
            if not refused:
                return stages
            self._eager.update(refused)

    def _compile_stage(self, stage: Stage) -> list[torch.fx.Node]:
        """Compile a stage, or return the nodes that have to be left out first."""
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
        """Warn about operators that cannot be compiled."""
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


def _run_eagerly(module: torch.fx.GraphModule) -> RunGraph:
    """Return a function that runs a stage in PyTorch."""

    def run(inputs: Sequence[torch.Tensor | torch.SymInt]) -> Sequence[object]:
        results: Sequence[object] = module(*inputs)
        return results

    return run
