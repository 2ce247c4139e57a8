"""A placement as JSON that can be pinned: names, no times, no paths, every list in the order of the model."""

from __future__ import annotations

import json
import re
from typing import TypedDict

from mirlo.driver.place.survey import Share, Survey
from mirlo.passes.byoc.records import AttemptRecord, NodeRecord

VERSION = 1
_POSITION = re.compile(r":(\d+:\d+)$")


AttemptReport = TypedDict(
    "AttemptReport",
    {
        "pattern": str, "depth": int, "matched": bool, "reason": str, "predicate": str, "lost_to": str, "at": str,
        "from": str,
    },
    total=False,
)  # fmt: skip
"""A pattern that was tried at a node; `from` is its root where that is another node."""


class NodeReport(TypedDict, total=False):
    """A node, and the target that took it; `function` is present if the model has several."""

    id: int
    name: str
    operator: str
    operands: list[str]
    results: list[str]
    reads: list[int]
    flops: int | None
    bytes: int | None
    target: str
    pattern: str
    composite: str
    region: str
    why_not: dict[str, str]
    tried: list[AttemptReport]
    function: str


class TotalsReport(TypedDict):
    """Sums of the whole model, and by target."""

    operators: int
    flops: int | None
    bytes: int | None
    targets: dict[str, dict[str, float]]


class PlacementReport(TypedDict):
    """The content of a file that `mirlo partition --report` writes."""

    version: int
    targets: list[str]
    placement: dict[str, str]
    totals: TotalsReport
    regions: list[dict[str, int | str | None]]
    not_merged: list[dict[str, str]]
    nodes: list[NodeReport]


def label(node: NodeRecord) -> str:
    """Return the name of a node in the model, or its position in the file."""
    if node.names:
        return "/".join(node.names)
    position = _POSITION.search(node.place)
    return f"at {position.group(1)}" if position is not None else f"number {node.id}"


def as_json(survey: Survey) -> PlacementReport:
    """Return the survey as dictionaries, lists, strings and numbers."""
    placement = survey.placement
    whole, decision = survey.total.flops, survey.decision
    functions = {node.function for node in placement.nodes}
    return {
        "version": VERSION,
        "targets": [str(target) for target in (*survey.targets.generators, survey.targets.host) if target is not None],
        "placement": {"by": "priority"} if decision is None else {"by": decision.how, "taken": decision.best},
        "totals": {
            "operators": survey.total.nodes,
            "flops": whole,
            "bytes": survey.total.bytes,
            "targets": {name or "nobody": _share(share, whole) for name, share in survey.shares.items()},
        },
        "regions": [
            {
                "target": region.target, "name": region.function, "operators": len(region.nodes),
                "composites": len(region.composites), "flops": region.flops, "bytes_in": region.bytes_in,
                "bytes_out": region.bytes_out, "kept": region.kept, "reason": region.reason,
            }
            for region in placement.regions
        ],
        "not_merged": [vars(record) for record in placement.unmerged],
        "nodes": [_node(survey, node, len(functions) > 1) for node in placement.nodes],
    }  # fmt: skip


def dumped(report: PlacementReport) -> str:
    """Format a file: sorted, one line per value."""
    return json.dumps(report, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _share(share: Share, whole: int | None) -> dict[str, float]:
    result = {**vars(share), "operators": share.nodes, "share_of_flops": None}
    del result["nodes"]
    if whole and share.flops is not None:
        result["share_of_flops"] = round(share.flops / whole, 4)
    return result


def _node(survey: Survey, node: NodeRecord, tell_function: bool) -> NodeReport:
    placement = survey.placement
    taken, region = placement.owner(node.id), placement.region_of(node.id)
    result: NodeReport = {
        "id": node.id, "name": label(node), "operator": node.operator, "operands": list(node.operands),
        "results": list(node.results), "reads": list(node.reads), "flops": node.flops, "bytes": node.bytes,
        "target": survey.target_of(node.id) or "nobody",
        "pattern": taken.pattern if taken is not None else "",
        "composite": taken.function if taken is not None else "",
        "region": region.function if region is not None else "",
        "why_not": {t: why for t in placement.targets if (why := placement.why_not(node.id, t))},
        "tried": [_attempt(survey, attempt, node.id) for attempt in placement.about(node.id)],
    }  # fmt: skip
    if tell_function:
        result["function"] = node.function
    return result


def _attempt(survey: Survey, attempt: AttemptRecord, node: int) -> AttemptReport:
    nodes = survey.placement.nodes
    result: AttemptReport = {"pattern": f"{attempt.target}.{attempt.pattern}", "depth": attempt.depth}
    if attempt.root != node:
        result["from"] = label(nodes[attempt.root])
    if attempt.accepted:
        result["matched"] = True
        return result
    result["matched"], result["reason"] = False, attempt.reason
    if attempt.predicate:
        result["predicate"] = attempt.predicate
    if attempt.lost_to:
        result["lost_to"] = attempt.lost_to
    if attempt.at is not None and attempt.at != node:
        result["at"] = label(nodes[attempt.at])
    return result
