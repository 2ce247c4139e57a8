"""Bisection without an oracle and without a tolerance: the model itself defines what each step must compute.

Rules and passes of the graph are compared first, then kernels with their definitions. It takes no inputs, runs nothing
on the target, and works for models of any form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.passes.exact.compare_graphs import first_wrong
from mirlo.passes.exact.verdict import DIFFERENT, OUTSIDE
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.nodes import ReportProgress
from mirlo.tools.verify.graph import verify_graph
from mirlo.tools.verify.model import can_verify, verify_model


@dataclass(frozen=True)
class InexactStep:
    """The first step of a compilation that changes what a model computes."""

    what: str
    """The rule, the pass or the kernel, with its nodes and what differs."""
    details: str = ""
    """Both graphs, where it is a rule."""


@dataclass(frozen=True)
class NoInexactStep:
    """The result that no step changes what a model computes, and how much was compared."""

    compared: int
    outside: int
    """Rules, passes and kernels that are not compared."""


def first_inexact_step(
    model: object,
    target: str,
    *,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    progress: ReportProgress,
) -> InexactStep | NoInexactStep:
    """Return the first rule, pass or kernel that computes something else than it should."""
    progress("comparing passes and rules")
    graph = verify_graph(model, target, threads=threads, shapes=shapes)
    wrong = first_wrong(graph.verdicts)
    if wrong is not None:
        return InexactStep(str(wrong), getattr(wrong, "graphs", ""))
    verdicts = [each.status for each in graph.verdicts.all]
    if can_verify(target):
        progress("comparing kernels")
        kernels = verify_model(model, target, threads=threads, shapes=shapes)
        different = next((each for each in kernels.verdicts if each.status == DIFFERENT), None)
        if different is not None:
            return InexactStep(str(different))
        verdicts += [each.status for each in kernels.verdicts]
    outside = verdicts.count(OUTSIDE)
    return NoInexactStep(len(verdicts) - outside, outside)
