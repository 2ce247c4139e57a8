"""The support matrix as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirlo.passes.rules import Rule
from mirlo.tools.conformance.case import COLUMNS
from mirlo.tools.conformance.check import DECLINED, FAILED, OK, WRONG, Matrix, MatrixEntry, SupportVerdict
from mirlo.tools.explain.rules import rule_json, short_position
from mirlo.tools.tables import columns

MARKS = {OK: "ok", DECLINED: "declined", WRONG: "WRONG", FAILED: "FAILED"}


def totals(matrix: Matrix) -> str:
    """Format the count of each verdict on one line."""
    checked = sum(len(entry.verdicts) for entry in matrix.entries)
    parts = [f"{matrix.count(status)} {status}" for status in (OK, DECLINED, WRONG, FAILED)]
    what = "operators, intrinsics and patterns" if matrix.has_patterns else "operators and intrinsics"
    return f"{matrix.target}: {checked} checks of {len(matrix.entries)} {what}: {', '.join(parts)}"


def text_lines(matrix: Matrix) -> Iterator[str]:
    """Yield a row for each operator, the reasons for what is not ok, then the totals."""
    rows: list[tuple[str, ...]] = [("", *COLUMNS)]
    rows += [(entry.name, *(_cell(entry.verdicts.get(kind)) for kind in COLUMNS)) for entry in matrix.entries]
    yield from columns(rows)
    notes = [*_unreached(matrix), *_notes(matrix)]
    if notes:
        yield ""
        yield from notes
    yield ""
    yield totals(matrix)


def _cell(verdict: SupportVerdict | None) -> str:
    return MARKS[verdict.status] if verdict is not None else "-"


def _unreached(matrix: Matrix) -> Iterator[str]:
    for name, reason in matrix.unchecked:
        yield f"{name}: not checked: {reason}"
    for rule, reason in matrix.unreached:
        yield f"{rule.subject}: not reached: no case took rule '{rule.name}' at {short_position(rule)}: {reason}"
    for rule, reason in matrix.elsewhere:
        yield f"{rule.subject}: not checked: rule '{rule.name}' is for other machines: {reason}"
    for name, reason in matrix.untaken:
        yield f"{name}: never taken: {reason}"


def _notes(matrix: Matrix) -> Iterator[str]:
    for entry in matrix.entries:
        for kind, verdict in entry.verdicts.items():
            if verdict.status != OK:
                yield f"{entry.name} {kind}: {verdict.status}: {verdict.detail}"


def markdown(matrix: Matrix) -> str:
    """Return the page of a target."""
    operators = [entry for entry in matrix.entries if entry.name.startswith("relax.")]
    intrinsics = [entry for entry in matrix.entries if entry.name.startswith("tir.")]
    lines = [
        f"# What target `{matrix.target}` computes",
        "",
        f"Written by `mirlo check-target {matrix.target} --markdown`; do not edit. Each cell is some cases that were",
        "compiled, run and compared with numpy: `ok`, `declined` (no rule takes it; the reason is below), `WRONG`,",
        "`FAILED`.",
        "An empty cell is an element type that the operator does not have, or that is not checked.",
        "",
        f"{totals(matrix)}.",
    ]
    kernels = [entry for entry in matrix.entries if entry.name.startswith("kernel.")]
    schedules = [entry for entry in matrix.entries if entry.name.startswith("schedule.")]
    instructions = [entry for entry in matrix.entries if entry.is_instruction]
    known = (*operators, *intrinsics, *kernels, *schedules, *instructions)
    others = [entry for entry in matrix.entries if entry not in known]
    for title, entries in (
        ("Operators", operators),
        ("Intrinsics", intrinsics),
        ("Kernels of several blocks", kernels),
        ("Schedule rules", schedules),
        ("Of plug-ins: operators, patterns of code generators", others),
        ("Instructions", instructions),
    ):
        if entries:
            lines += ["", f"## {title}", "", *_table(entries)]
    notes = [f"- {note}" for note in _notes(matrix)]
    return "\n".join([*lines, *(["", "## Reasons", "", *notes] if notes else [])]) + "\n"


def _table(entries: list[MatrixEntry]) -> Iterator[str]:
    kinds = [kind for kind in COLUMNS if any(kind in entry.verdicts for entry in entries)]
    yield f"| | {' | '.join(kinds)} |"
    yield f"| --- |{' --- |' * len(kinds)}"
    for entry in entries:
        cells = (MARKS[entry.verdicts[kind].status] if kind in entry.verdicts else "" for kind in kinds)
        yield f"| `{entry.name}` | {' | '.join(cells)} |"


def _rules_json(rules: Sequence[tuple[Rule, str]]) -> list[dict[str, object]]:
    return [rule_json(rule) | {"subject": rule.subject, "reason": reason} for rule, reason in rules]


def as_json(matrix: Matrix) -> dict[str, object]:
    """Return the matrix as JSON."""
    return {
        "target": matrix.target,
        "totals": {status: matrix.count(status) for status in (OK, DECLINED, WRONG, FAILED)},
        "unreached": _rules_json(matrix.unreached),
        "elsewhere": _rules_json(matrix.elsewhere),
        "untaken": dict(matrix.untaken),
        "entries": {
            entry.name: {
                kind: {"status": v.status, "error": v.error, "detail": v.detail} for kind, v in entry.verdicts.items()
            }
            for entry in matrix.entries
        },
    }
