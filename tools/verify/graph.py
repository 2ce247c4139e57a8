"""Comparison of a model pass by pass, and rule by rule, for `mirlo verify --graph`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.driver.programs.partition import modules_on_tensors
from mirlo.passes.exact.compare_graphs import GraphVerdicts, compare_passes
from mirlo.passes.exact.compare_rules import counts_by_rule
from mirlo.passes.exact.sizes import parse_sizes
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE
from mirlo.passes.registry import PassError
from mirlo.runtime.records import dataclass
from mirlo.tools.tables import columns
from mirlo.tools.verify.model import prepare_model

if TYPE_CHECKING:
    from mirlo.driver.options import Strategies
    from mirlo.driver.strategies import Measured
    from mirlo.frontends.foreign import ImportedModule
    from mirlo.runtime.params import ParameterStore

LAST = ("schedule", "plan-memory")
"""Passes before which graphs end: kernels are compared with their definitions from there on."""


@dataclass(frozen=True)
class GraphVerification:
    """The verdicts of the passes and rules of a model for a target."""

    target: str
    verdicts: GraphVerdicts
    seconds: float


def verify_graph(
    model: str | ir.Module | ImportedModule | object,
    target: str = "llvm",
    *,
    processor: str | None = None,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    strategies: Strategies | Measured | str | None = None,
    precision: str | None = None,
    sizes: str = "",
    params: ParameterStore | None = None,
) -> GraphVerification:
    """Compare a model after each pass with the model before, and each rule's operators with their replacements.

    Of a model that is compiled in parts, such as those around strings, each part is compared.
    `sizes` are those of symbols, of which the first combination is taken. Other options are those of `mirlo.compile`.
    """
    prepared = prepare_model(
        model, target, processor=processor, threads=threads, shapes=shapes, strategies=strategies, tune=False,
        precision=precision, params=params, cache=False,
    )  # fmt: skip
    parts = modules_on_tensors(prepared.module, prepared.session)
    steps = list(prepared.pipeline.steps)
    ends = [i for i, step in enumerate(steps) if step.name in LAST]
    if not ends:
        raise PassError(f"target '{target}' has no pass {' or '.join(LAST)} in its pipeline, at which graphs end")
    start = time.perf_counter()
    with prepared.module.context, ir.Location.unknown():
        prepared.session.report = lambda *_: None
        requested = parse_sizes(sizes)
        verdicts = compare_passes(parts, prepared.session, steps[: ends[0]], requested[0] if requested else None)
    return GraphVerification(str(prepared.targets), verdicts, time.perf_counter() - start)


def graph_lines(verification: GraphVerification) -> Iterator[str]:
    """Yield a table of passes and one of rules, and details of those that differ."""
    verdicts = verification.verdicts
    seconds = (
        (f"part {each.part}: {each.step}" if each.part else each.step, each.status, f"{each.seconds:.1f} s", each.why)
        for each in verdicts.passes
    )
    yield from columns(
        [("pass", "", "CPU", "found"), ("(import)", "", f"{verdicts.first_seconds:.1f} s", ""), *seconds]
    )  # fmt: skip
    rows = [
        (rule, *(str(counts[status]) for status in (EQUAL, DIFFERENT, OUTSIDE)))
        for rule, counts in counts_by_rule(verdicts.rules).items()
    ]
    yield ""
    yield from columns([("rule", EQUAL, DIFFERENT, OUTSIDE), *rows])
    yield from dict.fromkeys(str(each) for each in verdicts.rules if each.status != EQUAL)
    wrong = next((each for each in verdicts.rules if each.status == DIFFERENT), None)
    if wrong is not None:
        yield wrong.graphs
    counts = ", ".join(f"{verdicts.count(status)} {status}" for status in (EQUAL, DIFFERENT, OUTSIDE))
    yield f"{verification.target}: {counts}; {verification.seconds:.1f} s"


def graph_as_json(verification: GraphVerification) -> dict[str, object]:
    """Return all verdicts as JSON."""
    verdicts = verification.verdicts
    return {
        "target": verification.target,
        "counts": {status: verdicts.count(status) for status in (EQUAL, DIFFERENT, OUTSIDE)},
        "seconds": round(verification.seconds, 2),
        "passes": [
            {
                "pass": each.step,
                "part": each.part,
                "status": each.status,
                "why": each.why,
                "seconds": round(each.seconds, 2),
            }
            for each in verdicts.passes
        ],
        "rules": [
            {"rule": each.rule, "place": each.place, "status": each.status, "why": each.why, "nodes": list(each.nodes)}
            for each in verdicts.rules
        ],
    }
