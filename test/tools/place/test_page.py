"""The page of a placement: complete, self-contained, and with a target at every box."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import mirlo, output_of

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    model, plugin = FOLDER / "model.mlir", FOLDER / "Inputs" / "units.py"
    output_of(mirlo("partition", model, "--targets", "unit,far,llvm", "--plugin", plugin, "--report", path))
    return path.read_text(encoding="utf-8")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_it_needs_nothing_else(text: str) -> None:
    tags = _Tags()
    tags.feed(text)
    assert not [tag for tag, facts in tags.found if {"src", "href"} & set(facts)]
    assert not re.search(r"url\((?!#)|@import|fetch\(|\{\{", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_its_data(text: str) -> None:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    assert data["title"] == "model.mlir on unit,far,llvm" and f"<h1>{data['title']}</h1>" in text
    assert data["targets"] == ["unit", "far", "llvm"]
    titles = {name: [box[5] for box in level["boxes"]] for name, level in data["levels"].items()}
    assert titles["composites"] == ["conv + relu", "conv", "relu", "log", "silu", "negative"]
    assert titles["regions"] == ["unit_region_0", "conv", "far_region_0", "log", "unit_region_1", "negative"]
    assert data["described"]["titles"] == ["name", "target", "operators", "share", "loader", "needs"]
    described = {row[0]: row[1:] for row in data["described"]["rows"]}
    assert described["unit_region_0"][3:] == ["unit-loader", "firmware <2> of the unit"]
    assert described["unit_region_1"][3:] == described["unit_region_0"][3:]
    assert described["far_region_0"][3:] == ["llvm", "-"]  # it leaves its code to the host
    assert described["main"][:2] == ["llvm", "3"] and described["main"][3] == "llvm"
    assert list(described)[-1] == "main"
    assert len(titles["operators"]) == len(data["nodes"]) == 7
    for level in data["levels"].values():
        assert sorted(node for box in level["boxes"] for node in box[7]) == list(range(7))
        assert all(data["nodes"][node]["target"] == box[4] for box in level["boxes"] for node in box[7])
    wide = next(node for node in data["nodes"] if node["name"] == "wide")
    assert wide["why_not"]["unit"] == "unit.conv_relu matched 2 deep: the unit has 4 accumulators (channels=8)"
