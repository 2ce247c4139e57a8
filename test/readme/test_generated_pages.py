"""The commands that write generated pages, as the page of tests lists them."""

from __future__ import annotations

import re
import runpy
import warnings

import pytest
from commands import ROOT

COMMANDS = re.findall(
    r"^\| \[.*\]\(([\w-]+\.md)\) \| `python -m (\S+) > docs/\1` \|$",
    (ROOT / "docs" / "tests.md").read_text(encoding="utf-8"), re.MULTILINE,
)  # fmt: skip


@pytest.mark.parametrize(("page", "module"), COMMANDS)
def test_the_command_prints_the_page(page: str, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert capsys.readouterr().out == (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_all_commands_are_found() -> None:
    assert {page for page, _ in COMMANDS} == {"operators.md", "passes.md", "onnx.md", "options.md", "choices.md"}
