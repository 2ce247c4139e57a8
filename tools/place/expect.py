"""Comparison of a placement with an earlier one, which CI pins, and the differences as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mirlo.passes.files import FileError
from mirlo.tools.place.as_json import VERSION, NodeReport, PlacementReport

SHOWN = 30
"""Most differences that are listed; the others are counted."""
Key = tuple[str, str, int]


def read_expected(path: str | Path) -> PlacementReport:
    """Read a file that `--report FILE.json` wrote earlier."""
    try:
        expected: PlacementReport = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read '{path}': {error.strerror or error}") from error
    except ValueError as error:
        raise FileError(f"'{path}' is not a report of 'mirlo partition': {error}") from error
    if not isinstance(expected, dict) or not {"version", "targets", "totals", "nodes"} <= set(expected):
        raise FileError(f"'{path}' is not a report of 'mirlo partition': write one with --report {path}")
    if expected["version"] != VERSION:
        raise FileError(f"'{path}' is of version {expected['version']}; this Mirlo writes {VERSION}: write it again")
    wrong = next(_wrong_parts(expected), "")
    if wrong:
        raise FileError(f"'{path}' is damaged: {wrong}; write it again with --report {path}")
    return expected


def _wrong_parts(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts that are not as `--report` writes them, among those that the comparison reads."""
    if not _are(report["targets"], str):
        yield "'targets' is no list of texts"
    if not isinstance(report["totals"], dict):
        yield "'totals' is no object"
    if not _are(report.get("regions", []), dict):
        yield "'regions' is no list of objects"
    if not _are(report["nodes"], dict):
        yield "'nodes' is no list of objects"
        return
    for number, node in enumerate(report["nodes"]):
        missing = [key for key in ("name", "operator", "target", "pattern") if not isinstance(node.get(key), str)]
        if missing:
            yield f"'{missing[0]}' of node {number} is no text"


def _are(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def differences(expected: PlacementReport, actual: PlacementReport) -> list[str]:
    """Return a line for each difference: first the targets of nodes, then totals, then all others."""
    lines = [*_targets(expected, actual), *_nodes(expected, actual), *_totals(expected, actual)]
    if not lines:
        # What is left is in how patterns were tried, or in regions: the place in the file tells.
        lines = list(_values("", expected, actual))
    return lines


def shown(lines: Sequence[str]) -> str:
    """Return the first lines, and how many more there are."""
    more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join([*(f"  {line}" for line in lines[:SHOWN]), *more])


def _targets(expected: PlacementReport, actual: PlacementReport) -> Iterator[str]:
    if expected["targets"] != actual["targets"]:
        yield f"targets: expected {', '.join(expected['targets'])}; found {', '.join(actual['targets'])}"


def _keyed(nodes: Sequence[NodeReport]) -> dict[Key, NodeReport]:
    """Return nodes by name and operator: their ids change when one is added before them."""
    count: Counter[tuple[str, str]] = Counter()
    keyed: dict[Key, NodeReport] = {}
    for node in nodes:
        name, operator = node["name"], node["operator"]
        keyed[name, operator, count[name, operator]] = node
        count[name, operator] += 1
    return keyed


def _nodes(expected: PlacementReport, actual: PlacementReport) -> Iterator[str]:
    old, new = _keyed(expected["nodes"]), _keyed(actual["nodes"])
    for key, node in new.items():
        if key not in old:
            yield f"{_title(node)}: is new, on {_assigned_target(node)}"
            continue
        before = old[key]
        if (before["target"], before["pattern"]) != (node["target"], node["pattern"]):
            why = node["why_not"].get(before["target"], "")
            yield f"{_title(node)}: expected {_assigned_target(before)}, found {_assigned_target(node)}" + (
                f" ({why})" if why else ""
            )
    yield from (
        f"{_title(node)}: is gone, it was on {_assigned_target(node)}" for key, node in old.items() if key not in new
    )


def _title(node: NodeReport) -> str:
    return f'{node["operator"]} "{node["name"]}"'


def _assigned_target(node: NodeReport) -> str:
    return f"{node['target']}.{node['pattern']}" if node["pattern"] else str(node["target"])


def _totals(expected: PlacementReport, actual: PlacementReport) -> Iterator[str]:
    yield from _values("totals", expected["totals"], actual["totals"])
    yield from _values("regions", len(expected.get("regions", ())), len(actual["regions"]))


def _values(path: str, expected: object, actual: object) -> Iterator[str]:
    """Yield every value that differs, by its path in the file."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted({*expected, *actual}):
            yield from _values(f"{path}.{key}" if path else key, expected.get(key), actual.get(key))
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for i, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from _values(f"{path}[{i}]", one, other)
    elif expected != actual:
        yield f"{path}: expected {_short(expected)}, found {_short(actual)}"


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} entries"
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
