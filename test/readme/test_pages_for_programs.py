"""AGENTS.md and llms.txt: their links lead to pages, and their commands and words exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirlo.tools.cli import COMMANDS
from mirlo.tools.cli.arguments import make_parser

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["AGENTS.md", "llms.txt"])
def test_links_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_commands_take_what_the_page_gives_them() -> None:
    lines = re.findall(r"`mirlo ([^`]+)`", (ROOT / "AGENTS.md").read_text())
    assert len(lines) > 8
    for line in lines:
        words = line.replace("MODEL", "model.onnx").replace("NAME", "unit").split()
        assert words[0] in COMMANDS
        make_parser(words).parse_args(words)
