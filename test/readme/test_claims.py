"""Figures of pages name the command, the commit, the processor and the date that they come from."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec

import pytest
from commands import ROOT

from mirlo.benchmarks import claims
from mirlo.benchmarks.claims import OLD, read_pages, sections_of, without_source

SOURCE = "Measured: `python -m benchmarks.calls`; 1a2b3c4d; AMD EPYC (Zen 4), two cores; 2026-11-23."
NEEDS_HISTORY = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="the history of the repository is not here"
)


def test_no_figure_is_without_its_source() -> None:
    missing = list(without_source(read_pages()))
    assert not missing, "\n".join([*missing, f"write a line such as: {SOURCE}"])


def test_commands_exist() -> None:
    rules = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for section in read_pages():
        for source in section.sources:
            for command in re.findall(r"`([^`]+)`", source.command):
                program, *arguments = command.split()
                place = f"{section.page}:{source.line} {command}"
                if program == "python" and arguments[0] == "-m":
                    assert find_spec(f"mirlo.{arguments[1]}") is not None, place
                elif program == "make":
                    assert arguments[0] in rules, place
                elif program == "pytest":
                    assert all((ROOT / path).exists() for path in arguments if path.startswith("test")), place


@NEEDS_HISTORY
def test_commits_are_of_the_history() -> None:
    is_shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True
    )
    if is_shallow.stdout.strip() != "false":
        pytest.skip("the history is not complete here")
    known = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = {source.commit for section in read_pages() for source in section.sources}
    unknown = [commit for commit in sorted(named) if f"\n{commit}" not in f"\n{known}"]
    assert not unknown


@NEEDS_HISTORY
@pytest.mark.sample(0)
def test_old_figures_are_marked() -> None:
    """Nightly, as figures become old without a change of theirs: `python -m benchmarks.claims --mark`."""
    wrong = [
        f"{section.page}:{source.line}"
        for section in read_pages()
        for source in section.sources
        if source.is_marked != claims.is_old(source)
    ]
    assert not wrong, "run python -m benchmarks.claims --mark"


@pytest.mark.parametrize(
    "figures",
    [
        "A call takes 1.5 ms.", "It takes 0.73 of the time.", "40 MiB at the peak", "12 % of all", "1.2 times as long",
        "| model | ms | ratio | MB |\n| --- | --- | --- | --- |\n| a | 1.5 | 0.71 | 12 (11) |",
    ],
)  # fmt: skip
def test_figures_are_found(figures: str) -> None:
    def missing(*lines: str) -> list[str]:
        return list(without_source(sections_of("page.md", "\n".join(["# Page", *lines]))))

    assert missing(figures) == ["page.md:1 Page: lines 2 have figures without command, commit, processor and date"] or (
        missing(figures)[0].startswith("page.md:1 Page: lines 4 have figures")
    )
    assert missing(SOURCE, "", figures) == missing(figures, "", SOURCE) == missing(f"{SOURCE}{OLD}", figures) == []
    assert missing("<!-- not measured: limits -->", figures) == []
    assert missing(SOURCE, "## Another", figures)[0].startswith("page.md:3 Another: lines ")
    assert "page.md:2 no line of the form of `Measured:`" in missing(SOURCE.replace("; 1a2b3c4d", ""), figures)


@pytest.mark.parametrize("text", ["Version 2.13", "in 3 steps", "`sleep 5 s`", "```\n5 ms\n```", "| a | 1 |", "x86-64"])
def test_what_is_no_figure(text: str) -> None:
    assert not list(without_source(sections_of("page.md", text)))
