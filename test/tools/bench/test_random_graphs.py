"""The record of random graphs: which seeds come next, what is committed, what the table shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirlo.benchmarks import random_graphs
from mirlo.benchmarks.random_graphs import FIRST, LEVELS, SeedRun, joined_runs, lines_of, next_seed
from mirlo.benchmarks.run_records import append_record

RUN = SeedRun(
    "graphs", "llvm", LEVELS, 1_000_000, 50, {"right": 48, "refused": 2}, (), 25.0, "aaaa", "2026-11-29", "Zen"
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_graphs, "COMMITTED", tmp_path / "committed.jsonl")
    monkeypatch.setattr(random_graphs, "RECENT", tmp_path / "recent" / "recent.jsonl")


def test_seeds_continue_for_each_mode_target_and_level() -> None:
    assert next_seed([], "graphs", "llvm", LEVELS) == FIRST["graphs"]
    runs = [RUN, replace(RUN, first=1_000_050, count=25), replace(RUN, target="c", count=10)]
    assert next_seed(runs, "graphs", "llvm", LEVELS) == 1_000_075
    assert next_seed(runs, "graphs", "c", LEVELS) == 1_000_010
    assert next_seed(runs, "graphs", "spirv", (2,)) == FIRST["graphs"]
    assert next_seed(runs, "empty", "llvm", (0,)) == FIRST["empty"]


def test_each_run_takes_the_next_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def report(command: list[str], **_: Any) -> Any:
        commands.append(command)
        count = int(next(word for word in command if word.startswith("--count=")).partition("=")[2])
        found = [{"seed": 7, "state": "wrong", "what": "level 0: 'y'"}] if "empty" in command else []
        text = json.dumps({"count": count, "states": {"right": count}, "found": found})
        return SimpleNamespace(stdout=text, returncode=0)

    monkeypatch.setattr(random_graphs, "subprocess", SimpleNamespace(run=report, PIPE=-1))
    monkeypatch.setattr(random_graphs, "CHUNK", 30)
    assert random_graphs.main(["llvm", "--count", "70", "--jobs", "2"]) == 1
    seeds = [[word for word in command if word.startswith(("--seed", "--count", "--opt"))] for command in commands]
    assert seeds[:2] == [["--seed=1000000", "--count=60"], ["--seed=1000060", "--count=10"]]
    assert seeds[2:] == [[f"--opt-level={level}", "--seed=100000", "--count=7"] for level in LEVELS]
    assert random_graphs.main(["llvm", "--count", "10", "--minutes", "0"]) == 0 and len(commands) == 6
    assert random_graphs.main(["spirv", "--level", "2", "--count", "5"]) == 0
    assert len(random_graphs.read_runs()) == 7


def test_no_report_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(stdout="", returncode=3)
    monkeypatch.setattr(random_graphs, "subprocess", SimpleNamespace(run=lambda *_, **__: done, PIPE=-1))
    with pytest.raises(SystemExit, match="status 3, and no report"):
        random_graphs.main(["llvm", "--count", "10"])


def test_runs_that_continue_others_at_a_commit_are_one_line() -> None:
    following = replace(RUN, first=1_000_050, found=("1000051: wrong: 'y'",), fixed={"1000051": "bbbb"})
    apart, later = replace(RUN, first=1_000_500), replace(RUN, first=1_000_100, commit="bbbb")
    joined = joined_runs([later, following, RUN, apart])
    assert [(each.first, each.count) for each in joined] == [(1_000_000, 100), (1_000_100, 50), (1_000_500, 50)]
    assert joined[0].states == {"right": 96, "refused": 4} and joined[0].seconds == 50
    assert joined[0].fixed == {"1000051": "bbbb"}
    append_record(random_graphs.RECENT, RUN)
    append_record(random_graphs.RECENT, following)
    random_graphs.commit_runs()
    assert not random_graphs.RECENT.exists() and random_graphs.read_runs() == joined_runs([RUN, following])


def test_the_table_counts_each_level() -> None:
    assert list(lines_of([])) == ["No random graphs are recorded: `make graphs TARGET=llvm`."]
    wrong = replace(RUN, first=1_000_050, commit="bbbb", found=("1000051: wrong: 'y'", "1000052: failed: no"))
    runs = [replace(wrong, fixed={"1000051": "cccc"}), RUN, replace(RUN, target="spirv", levels=(2,))]
    lines = list(lines_of(runs))
    assert lines[2] == "| graphs | llvm | 0 | 100 | 4 | 2 | 1 | 0.12 | aaaa to bbbb |"
    assert lines[6] == "| graphs | spirv | 2 | 50 | 2 | 0 | 0 | 0.50 | aaaa |"
    assert lines[8] == "Processor: Zen."
    assert lines[10:] == [
        "- graphs, llvm at bbbb, seed 1000051: wrong: 'y' (fixed: cccc)",
        "- graphs, llvm at bbbb, seed 1000052: failed: no",
    ]


def test_the_committed_record_is_read() -> None:
    for line in (
        Path(random_graphs.__file__).with_name("results").joinpath("random_graphs.jsonl").open(encoding="utf-8")
    ):
        assert set(json.loads(line)) == set(SeedRun.__dataclass_fields__)
