"""The comparison of placements as text."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.driver.place.decision import Decision
from mirlo.tools.tables import columns

TITLES = ("alternative", "given away", "ms", "by the first")


def candidate_rows(decision: Decision) -> list[tuple[str, ...]]:
    """Return the alternatives as rows of text."""
    rows: list[tuple[str, ...]] = []
    for candidate in decision.candidates:
        count = str(sum(map(len, candidate.nodes.values())))
        mark = " ← taken" if candidate.name == decision.best else ""
        if candidate.microseconds is None:
            rows.append((candidate.name, count, "", candidate.problem))
        else:
            ratio = f"{candidate.ratio:.3f}" if candidate.ratio is not None else ""
            note = f" ({candidate.problem})" if candidate.problem else ""
            rows.append((candidate.name, count, f"{candidate.microseconds / 1000:.3f}", f"{ratio}{mark}{note}"))
    return rows


def decision_lines(decision: Decision) -> Iterator[str]:
    """Format the comparison as text."""
    known = ", measured before" if decision.known else ""
    threads = "1 thread" if decision.threads == 1 else f"{decision.threads} threads"
    yield f"alternatives, cost {decision.how}, {threads}{known}:"
    yield from (f"  {line}" for line in columns([TITLES, *candidate_rows(decision)], numbers={1, 2}))
    if decision.regions:
        yield "regions elsewhere, in microseconds:"
        rows = []
        for region in decision.regions:
            costs = ", ".join(f"{name} {cost:.1f}" for name, cost in region.microseconds.items())
            best = f"best on {region.best}" + (f" ({region.problem})" if region.problem else "")
            rows.append((f"  {region.region}", f"{region.operators} operators", costs, best))
        yield from columns(rows, numbers={1})
        for region in decision.regions:
            yield from (f"  {region.region} on {name}: {why}" for name, why in region.why.items() if why)
