"""Verdicts of kernels as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE, KernelVerdict
from mirlo.tools.tables import columns
from mirlo.tools.verify.model import Verification

SHOWN_NODES = 3
COMPLETE = 0.99
"""The share of operands of maxima from which it is not shown."""


def text_lines(verification: Verification) -> Iterator[str]:
    """Yield a table of kernels, and details of those that differ."""
    rows = [(v.function, v.status, v.rule, _found(v), _nodes(v)) for v in verification.verdicts]
    yield from columns([("kernel", "", "schedule", "found", "nodes"), *rows])
    for verdict in verification.verdicts:
        if verdict.status == DIFFERENT:
            yield from _details(verdict)
    counts = ", ".join(f"{verification.count(status)} {status}" for status in (EQUAL, DIFFERENT, OUTSIDE))
    yield f"{verification.target}: {counts}; {verification.seconds:.1f} s"


def _found(verdict: KernelVerdict) -> str:
    if verdict.status == EQUAL:
        parts = [f"{verdict.rounds} rounds, 2^-{verdict.bits:.0f}"]
        parts += [f"{len(verdict.sizes)} sizes"] if verdict.sizes else []
        parts += [f"{verdict.extremes:.0%} of the operands of maxima"] if verdict.extremes < COMPLETE else []
        parts += [verdict.without] if verdict.without else []
        return ", ".join([*parts, *verdict.unreached])
    return verdict.why


def _nodes(verdict: KernelVerdict) -> str:
    shown = ", ".join(verdict.nodes[:SHOWN_NODES])
    return shown if len(verdict.nodes) <= SHOWN_NODES else f"{shown}, and {len(verdict.nodes) - SHOWN_NODES} more"


def _details(verdict: KernelVerdict) -> Iterator[str]:
    yield f"kernel '@{verdict.function}' differs from its definition:"
    yield f"  nodes: {', '.join(verdict.nodes) or 'none'}"
    choices = ", ".join(f"{name}={value}" for name, value in verdict.choices.items())
    yield f"  schedule: {verdict.rule or 'none'}{f' with {choices}' if choices else ''}"
    yield f"  {verdict.why}, in round {verdict.seed}"
    if verdict.primitive:
        yield f"  it first differs after {verdict.primitive}"


def as_json(verification: Verification) -> dict[str, object]:
    """Return all verdicts as JSON."""
    return {
        "target": verification.target,
        "counts": {status: verification.count(status) for status in (EQUAL, DIFFERENT, OUTSIDE)},
        "seconds": round(verification.seconds, 2),
        "kernels": [verdict.as_json() for verdict in verification.verdicts],
    }
