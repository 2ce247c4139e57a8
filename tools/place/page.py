"""A placement as one page of HTML: the graph coloured by target, with the reasons on click."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from mirlo.driver.describe_regions import describe_regions
from mirlo.driver.place.decision import Decision
from mirlo.driver.place.survey import Survey
from mirlo.runtime.regions import MAIN, region_rows
from mirlo.tools.html_page import html_page
from mirlo.tools.place.as_json import NodeReport, as_json, label
from mirlo.tools.place.as_text import TITLES, amount, cells
from mirlo.tools.place.decision_text import TITLES as decision_titles
from mirlo.tools.place.decision_text import candidate_rows
from mirlo.tools.place.layout import Box, draw

if TYPE_CHECKING:
    from mirlo.passes.byoc.records import CompositeRecord, RegionRecord

LEVELS = ("regions", "composites", "operators")
MAX_BOXES = 1500
"""A page opens with the finest of the levels that have fewer boxes, operators not counted: they are shown on
request."""
CHARACTER = 6.7
LONGEST = 34
"""Characters of a line in a box."""


class LevelDrawing(TypedDict):
    """The boxes and edges of a drawing, as the page reads them."""

    width: int
    height: int
    boxes: list[list[float | str | list[int]]]
    edges: list[list[float]]


def page(survey: Survey, title: str) -> str:
    """Return the text of the page."""
    report = as_json(survey)
    rows = [[name or "nobody", *cells(share, survey.total)] for name, share in survey.shares.items()]
    levels = {name: _level(survey, name) for name in LEVELS}
    data = {
        "targets": list(survey.shares),
        "totals": {"titles": TITLES, "rows": rows},
        "shares": [s.flops for s in survey.shares.values()],
        "nodes": [_displayed_node(node) for node in report["nodes"]],
        "regions": report["regions"],
        "described": _described_regions(survey),
        "not_merged": report["not_merged"],
        "levels": levels,
        "first": _first(levels),
        "costs": _costs(survey.decision),
    }  # fmt: skip
    return html_page(Path(__file__).parent, title, data)


def _described_regions(survey: Survey) -> dict[str, object]:
    """Return the table of regions that other commands print of a compiled model: targets and loaders."""
    described = describe_regions(survey.targets, [survey.placement], len(survey.placement.nodes))
    # Without a host, nothing compiles what no code generator took.
    regions = [region for region in described if region.name != MAIN or survey.rest]
    titles, *rows = region_rows(regions)
    return {"titles": ["name", *titles[1:]], "rows": [[cell.strip() for cell in row] for row in rows]}


def _costs(decision: Decision | None) -> dict[str, object] | None:
    """Return the alternatives that were compared."""
    if decision is None:
        return None
    rows = candidate_rows(decision)
    return {"title": f"alternatives by {decision.how} cost", "titles": decision_titles, "rows": rows}


def _first(levels: Mapping[str, LevelDrawing]) -> str:
    return "composites" if len(levels["composites"]["boxes"]) <= MAX_BOXES else "regions"


def _displayed_node(node: NodeReport) -> dict[str, object]:
    """Return the data of a node that the page shows, numbers formatted."""
    return {**node, "flops": amount(node["flops"])}


def _level(survey: Survey, name: str) -> LevelDrawing:
    """Return a drawing: of operators, of composites and the operators outside them, or of regions and those."""
    owner: dict[str, Callable[[int], RegionRecord | CompositeRecord | None]] = {
        "regions": survey.placement.region_of, "composites": survey.placement.owner, "operators": lambda _: None,
    }  # fmt: skip
    groups: dict[int | str, list[int]] = {}
    for node in survey.placement.nodes:
        group = owner[name](node.id)
        groups.setdefault(node.id if group is None else group.function, []).append(node.id)
    members = list(groups.values())
    box_of = {node: i for i, member_nodes in enumerate(members) for node in member_nodes}
    reads = [
        [box_of[other] for node in member_nodes for other in survey.placement.nodes[node].reads if box_of[other] != i]
        for i, member_nodes in enumerate(members)
    ]
    lines = [_label_lines(survey, member_nodes, name) for member_nodes in members]
    boxes = [Box(max(64.0, CHARACTER * max(map(len, pair)) + 20), 38.0) for pair in lines]
    drawing = draw(boxes, reads)
    return {
        "width": round(drawing.width), "height": round(drawing.height),
        "boxes": [
            [*_frame(box), survey.target_of(member_nodes[0]), *pair, member_nodes]
            for box, pair, member_nodes in zip(drawing.boxes, lines, members, strict=True)
        ],
        "edges": [
            [first, last, *(round(number, 1) for point in points for number in point)]
            for first, last, points in drawing.edges
        ],
    }  # fmt: skip


def _frame(box: Box) -> list[float]:
    return [round(number, 1) for number in (box.x - box.width / 2, box.y, box.width, box.height)]


def _label_lines(survey: Survey, members: Sequence[int], level: str) -> tuple[str, str]:
    """Return the two lines of a box."""
    nodes = [survey.placement.nodes[i] for i in members]
    if level == "regions" and (region := survey.placement.region_of(members[0])) is not None:
        return region.function, f"{len(nodes)} operator{'s' * (len(nodes) != 1)}, {amount(region.flops)} FLOPs"
    names = [node.operator.partition(".")[2] or node.operator for node in nodes]
    title = " + ".join(names[:3]) + (f" + {len(names) - 3}" if len(names) > 3 else "")
    return _cut(title), _cut(label(nodes[-1]))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2 - 1]}…{text[-LONGEST // 2 :]}"
