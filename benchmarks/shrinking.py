"""Reproducers of faults, cut by `mirlo bisect` and shrunk by hypothesis: `python -m benchmarks.shrinking [FAULT...]`.

A fault is a legalization rule that computes something else, in some cases only. Bisection takes seeds of `mirlo fuzz
graphs` until one shows it, and cuts a submodel out of that graph. Hypothesis draws a list of seeds, one for each node
of the same generator, and shrinks the list; each attempt is a new graph. Printed are the graphs until one shows the
fault and the nodes of that one; then nodes and elements (of inputs and constants) of the reproducer, the graphs
compiled for it, and the processor seconds that reducing took.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from mirlo.extend.rules import decline, legalize
from mirlo.frontends.onnx import model as models
from mirlo.tools.bisect.compare import Tolerance
from mirlo.tools.bisect.nodes import first_departing_node
from mirlo.tools.bisect.oracles import reference
from mirlo.tools.bisect.submodel import cut, in_order, message_of
from mirlo.tools.bisect.trial import TrialOptions, try_submodel
from mirlo.tools.fuzz.differential import WRONG, judge_graph
from mirlo.tools.fuzz.graphs import MAX_NODES, RandomGraph, random_graph
from mirlo.tools.fuzz.operators import load_planners
from mirlo.tools.fuzz.verdict import FAILED

if TYPE_CHECKING:
    import onnx

BAD = (WRONG, FAILED)
ROUNDS = 2
MAX_GRAPHS = 600
"""Graphs after which the search for a fault gives up."""
active = ""
"""The fault whose rule applies."""


def _doubled(op, b):  # type: ignore[no-untyped-def]
    value = op.operation.operands[0]
    return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: x[i] + x[i], name="wrong"), value)


def _shape(op):  # type: ignore[no-untyped-def]
    """Return the shape of the result if it is that of the first operand, else ()."""
    shape = list(op.operation.result.type.shape)
    return shape if shape == list(op.operation.operands[0].type.shape) else ()


def _of_product(op, b):  # type: ignore[no-untyped-def]
    makers = [getattr(value.owner, "name", "") for value in op.operation.operands]
    return _doubled(op, b) if _shape(op) and "relax.multiply" in makers else decline("not of a product")


def _of_long_rows(op, b):  # type: ignore[no-untyped-def]
    return _doubled(op, b) if len(_shape(op)) > 1 and min(_shape(op)) > 2 else decline("short rows")


def _of_high_rank(op, b):  # type: ignore[no-untyped-def]
    return _doubled(op, b) if len(_shape(op)) > 2 else decline("of low rank")


FAULTS: Mapping[str, tuple[str, Callable[..., object]]] = {
    "cumsum": ("relax.cumsum", _doubled),
    "sum-of-product": ("relax.add", _of_product),
    "long-rows": ("relax.multiply", _of_long_rows),
    "high-rank": ("relax.add", _of_high_rank),
}
"""For each fault, the operator and the rule."""


@dataclass(frozen=True)
class Reproducer:
    """A model with a fault, and the cost of finding and reducing it."""

    model: onnx.ModelProto
    elements: int
    graphs: int
    """Graphs until one showed the fault."""
    nodes: int
    """Nodes of that one."""
    trials: int
    seconds: float


def by_bisection(first: int) -> Reproducer:
    """Return the submodel that bisection cuts out of the first graph that departs."""
    for graphs in range(1, MAX_GRAPHS):
        graph = random_graph(first + graphs)
        if _departs(graph):
            break
    start, trials = _cpu_seconds(), list[str]()
    model = in_order(models.load(graph.model))
    nodes = model.content.graph.nodes
    names = [name for node in nodes for name in node.outputs if name]
    values = dict(graph.feeds) | reference(message_of(model), graph.feeds, names)
    options = TrialOptions(tolerance=Tolerance(1e-3))
    whole = cut(model, range(len(nodes)), [value.name for value in model.content.graph.outputs], values)
    departing = first_departing_node(model, values, options, try_submodel(whole, values, options), trials.append)
    seconds = _cpu_seconds() - start
    elements = _elements(departing.part.model, departing.part.feeds)
    return Reproducer(departing.part.model, elements, graphs, len(nodes), len(trials) + 1, seconds)


class _NodeSeeds:
    """The generator of `random_graph`, begun anew for each node from a list of seeds that hypothesis draws."""

    def __init__(self, seeds: list[int]) -> None:
        self._seeds = seeds
        self._planners = len(load_planners())
        self._tries = 0
        self._rng = np.random.default_rng(0)

    def __getattr__(self, name: str) -> object:
        return getattr(self._rng, name)

    def geometric(self, p: float) -> int:
        return len(self._seeds)

    def choice(self, count: int, p: np.ndarray) -> int:
        if count == self._planners:  # a node begins, or another try for it
            again, node = divmod(self._tries, len(self._seeds))
            self._tries += 1
            self._rng = np.random.default_rng([self._seeds[node], again])
        return int(self._rng.choice(count, p=p))


def by_hypothesis(first: int) -> Reproducer:
    """Return the graph that hypothesis shrinks the first departing graph to."""
    graphs: list[tuple[RandomGraph, bool, float]] = []

    @seed(first)
    @settings(
        max_examples=MAX_GRAPHS, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=MAX_NODES))
    def departs(seeds: list[int]) -> None:
        graph = random_graph(0, rng=cast("np.random.Generator", _NodeSeeds(seeds)))
        is_bad = bool(graph.operators) and _departs(graph)
        graphs.append((graph, is_bad, _cpu_seconds()))
        assert not is_bad

    with contextlib.suppress(AssertionError):
        departs()
    begin = next(i for i, (_, is_bad, _) in enumerate(graphs) if is_bad)
    last = [graph for graph, is_bad, _ in graphs if is_bad][-1]
    return Reproducer(
        last.model, _elements(last.model, last.feeds), begin + 1, len(graphs[begin][0].operators),
        len(graphs) - begin - 1, _cpu_seconds() - graphs[begin][2],
    )  # fmt: skip


def _departs(graph: RandomGraph) -> bool:
    """Return whether a graph is computed wrongly, or ends the process that computes it."""
    child = os.fork()
    if not child:
        os._exit(judge_graph(graph).state in BAD)
    return os.waitpid(child, 0)[1] != 0


def _elements(model: onnx.ModelProto, feeds: Mapping[str, object]) -> int:
    constants = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    return constants + sum(np.asarray(array).size for array in feeds.values())


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _rows(fault: str) -> Iterator[str]:
    global active
    active = fault
    for number in range(ROUNDS):
        for reduce in (by_bisection, by_hypothesis):
            reduction = reduce(1000 + 1000 * number)
            nodes = reduction.model.graph.node
            yield (
                f"{fault:15} {reduce.__name__:14} {reduction.graphs:6} {reduction.nodes:5} {len(nodes):6} "
                f"{reduction.elements:9} {reduction.trials:6} {reduction.seconds:8.1f}  "
                f"{' '.join(node.op_type for node in nodes)}"
            )


def main() -> None:
    for name, (operator, rule) in FAULTS.items():

        def _rule(op, b, name=name, rule=rule):  # type: ignore[no-untyped-def]
            return rule(op, b) if active == name else decline("another fault")

        legalize(operator, target="llvm", priority=10, name=name)(_rule)
    judge_graph(random_graph(0))  # loads what the processes of graphs need
    print("fault           way            graphs nodes  nodes'  elements trials  seconds")
    for fault in sys.argv[1:] or FAULTS:
        for row in _rows(fault):
            print(row, flush=True)


if __name__ == "__main__":
    main()
