"""What the nightly run does, and the suites that records of bug classes name, exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirlo.benchmarks import random_graphs
from mirlo.benchmarks.nightly import PARTS, SHARDS

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"graphs", "guards", "samples-doors", "test-transformers"}
"""What runs in jobs of its own, and takes hours: it is no part of `make nightly`."""


def _rules() -> dict[str, list[str]]:
    """Return the rules of the Makefile, with their prerequisites."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {name: parts.split() for name, parts in re.findall(r"^([\w-]+):(?!=)(.*)$", text, re.MULTILINE)}


def test_continuous_integration_runs_all_shards_of_make_nightly() -> None:
    text = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"shard: \[(.*)\]", text)
    assert [int(number) for number in matrix.split(",")] == list(range(1, SHARDS + 1))
    assert f"make nightly SHARD=${{{{ matrix.shard }}}}/{SHARDS}\n" in text
    ran = re.findall(r"^ *- run: make ([\w-]+)$", text, re.MULTILINE)
    assert set(ran) == ALONE
    assert set(PARTS) <= set(_rules())


def test_the_suites_that_bug_classes_name_exist() -> None:
    text = (ROOT / "docs" / "bug-classes.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for row in rows:
        suites = row[-1]
        targets = set(re.findall(r"`make ([\w-]+)`", suites))
        assert targets <= set(_rules()), row[0]
        folder = ROOT / "test"
        for name in re.findall(r"`((?:plugins/\w+/)?(?:tests?/)?[\w/]*\w+(?:\.py)?)`", suites):
            if not name.startswith(("test", "plugins/")):
                continue
            path = ROOT / name if name.startswith(("test/", "plugins/")) else folder / name
            folder = path.parent if path.suffix else folder
            assert path.exists(), f"{row[0]}: {name}"
        assert targets or "test" in suites or "mirlo fuzz" in suites, row[0]


@pytest.mark.parametrize("deadline", [float("inf"), 25.0])
def test_random_graphs_end_near_the_time_that_they_have(deadline: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed takes a tenth of a second here; of a limited run, few are started after it."""
    runs: list[random_graphs.SeedRun] = []

    def run_seeds(mode, target, levels, first, count, jobs):  # type: ignore[no-untyped-def]
        return random_graphs.SeedRun(mode, target, levels, first, count, {}, (), 0.1 * count, "c", "d", "p")

    monkeypatch.setattr(random_graphs, "run_seeds", run_seeds)
    monkeypatch.setattr(random_graphs, "read_runs", lambda: runs)
    monkeypatch.setattr(random_graphs, "append_record", lambda path, result: runs.append(result))
    monkeypatch.setattr(random_graphs.time, "monotonic", lambda: sum(each.seconds for each in runs))
    assert random_graphs.run("llvm", (2,), 1000, 1, deadline)
    seeds = sum(each.count for each in runs if each.mode == "graphs")
    assert seeds == (1000 if deadline == float("inf") else 250)
