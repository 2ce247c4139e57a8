"""A placement as text: totals by target, regions, each node with its target and the reasons of the others."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.driver.place.survey import Share, Survey
from mirlo.tools.place.as_json import NodeReport, as_json
from mirlo.tools.place.decision_text import decision_lines
from mirlo.tools.tables import bytes_text, columns

TITLES = (
    "target", "operators", "FLOPs", "share", "bytes", "composites", "regions", "in", "out", "transposes", "copies",
)  # fmt: skip


def totals(survey: Survey) -> Iterator[str]:
    """Yield a row for each target."""
    whole = survey.total
    rows: list[tuple[str, ...]] = [TITLES]
    for name, share in survey.shares.items():
        rows.append((name or "nobody", *cells(share, whole)))
    yield from columns(rows, numbers=range(1, len(TITLES)))


def cells(share: Share, whole: Share) -> tuple[str, ...]:
    known = share.flops is not None and whole.flops
    part = f"{100 * share.flops / whole.flops:.2f} %" if known else "?"  # type: ignore[operator]
    own = (str(share.nodes), amount(share.flops), part, size(share.bytes))
    if not share.composites:
        return *own, "", "", "", "", "", ""
    transposes = f"{share.permutes} ({share.boundary_permutes} at its boundary)" if share.permutes else "0"
    return (
        *own,
        str(share.composites),
        str(share.regions),
        size(share.bytes_in),
        size(share.bytes_out),
        transposes,
        str(share.copies),
    )


def regions(survey: Survey) -> Iterator[str]:
    """Yield the regions, those that were returned, and neighbours that did not become one."""
    rows = []
    for region in survey.placement.regions:
        moved = f"{size(region.bytes_in)} in", f"{size(region.bytes_out)} out"
        time = "" if region.microseconds is None else f"{region.microseconds:.1f} us by its compiler"
        why = time if region.kept else f"given back: {region.reason}"
        rows.append(
            (f"  {region.function}", f"{len(region.nodes)} operators", f"{amount(region.flops)} FLOPs", *moved, why)
        )
    if rows:
        yield "regions:"
        yield from columns(rows, numbers={1, 2, 3, 4})
    for record in survey.placement.unmerged:
        yield f"  {record.producer} and {record.consumer} are not one region: {record.reason}"


def nodes(survey: Survey, attempts: bool = False, name: str | None = None) -> Iterator[str]:
    """Yield each node with its target; below it the reasons of other targets, or all patterns that were tried."""
    for node in as_json(survey)["nodes"]:
        if name is not None and not _is_called(node, name):
            continue
        taken = f"{node['target']}.{node['pattern']}" if node["pattern"] else node["target"]
        yield f"  {taken}: {node['operator']} {_quoted(node['name'])} → {', '.join(node['results'])}"
        if attempts:
            yield from (f"      {line}" for line in _attempts(node))
        # Who stands behind the one that took it says nothing.
        for target, why in node["why_not"].items():
            if not why.startswith("taken by ") and not attempts:
                yield f"      not on {target}: {why}"


def _is_called(node: NodeReport, name: str) -> bool:
    return name in (node["name"], *node["name"].split("/"), node["operator"], str(node["id"]))


def _quoted(name: str) -> str:
    return name if name.startswith(("at ", "number ")) else f'"{name}"'


def _attempts(node: NodeReport) -> Iterator[str]:
    for attempt in node["tried"]:
        start = f" from {_quoted(attempt['from'])}" if "from" in attempt else ""
        head = f"{attempt['pattern']}{start}"
        if attempt["matched"]:
            yield f"{head}: matched, {attempt['depth']} deep"
            continue
        at = f" (at {_quoted(attempt['at'])})" if "at" in attempt else ""
        predicate = f" [{attempt['predicate']}]" if "predicate" in attempt else ""
        yield f"{head}: no, {attempt['depth']} deep: {attempt['reason']}{at}{predicate}"
    tried = {attempt["pattern"].partition(".")[0] for attempt in node["tried"]}
    yield from (f"{target}: {why}" for target, why in node["why_not"].items() if target not in tried)


def report(survey: Survey, attempts: bool = False) -> Iterator[str]:
    """Format the whole survey."""
    yield from totals(survey)
    yield ""
    if survey.decision is not None:
        yield from decision_lines(survey.decision)
        yield ""
    yield from regions(survey)
    yield ""
    yield "nodes:"
    yield from nodes(survey, attempts)


def amount(count: int | None) -> str:
    """Format a number of operations with a unit."""
    if count is None:
        return "?"
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return str(count)


def size(count: int | None) -> str:
    """Format a number of bytes; a question mark if a dim is dynamic."""
    return "?" if count is None else bytes_text(count)
