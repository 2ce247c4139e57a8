"""Shards of the nightly suite: their parts of the tests, and the results read from a run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mirlo.benchmarks import nightly
from mirlo.benchmarks.nightly import PARTS, Result, latest, lines_of, parse_shard, parts_of, read_summary, shard_of

NAMES = [
    *(f"test/a/test_long.py::test_long[{i}]" for i in range(400)),
    *(f"test/b/test_{i}.py::test_{j}" for i in range(60) for j in range(3)),
]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_test_and_target_is_in_one_shard(count: int) -> None:
    shards = [shard_of(NAMES, number, count) for number in range(1, count + 1)]
    assert sum(map(len, shards)) == len(NAMES) and set().union(*shards) == set(NAMES)
    parts = [part for number in range(1, count + 1) for part in parts_of(number, count)]
    assert sorted(parts) == sorted(PARTS)


def test_costs_are_balanced_and_files_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {
        "test/a/test_long.py::test_long": 5.0,
        **{f"test/b/test_{i}.py::test_{j}": 10.0 for i in range(60) for j in range(3)},
    }
    monkeypatch.setattr(nightly, "read_costs", lambda path: costs)
    shards = [shard_of(NAMES, number, 8) for number in range(1, 9)]
    loads = [sum(costs[name.partition("[")[0]] for name in shard) for shard in shards]
    loads = [load + sum(PARTS[part] for part in parts_of(i + 1, 8)) for i, load in enumerate(loads)]
    assert max(loads) <= 1.5 * min(loads)
    files = [{name.partition("::")[0] for name in shard if name.startswith("test/b")} for shard in shards]
    assert sum(map(len, files)) == 60, "a file of half a minute is in one shard"
    assert sum(any("test_long" in name for name in shard) for shard in shards) == 4, "2,000 s, in pieces of 600"


def test_a_new_short_test_moves_no_other() -> None:
    before = shard_of(NAMES, 2, 8)
    assert before <= shard_of([*NAMES, "test/c/test_new.py::test_new"], 2, 8)


@pytest.mark.parametrize(
    "failures, unfinished, arguments, targets",
    [
        (("test/a.py::test_b[two - words] - E: 1 - 2", "b.py - E"), (), ["test/a.py::test_b[two - words]", "b.py"], []),
        (("make test-arm: test/a.py::test_b - Error",), ("make stages-today",), [], ["stages-today", "test-arm"]),
        (("make test-arm: status 2, test-arm.txt",), (), [], ["test-arm"]),
        (("test/a.py::test_b",), ("tests",), ["--shard", "3/8"], []),
        (("pytest ended with status 3: tests-3-8.txt",), (), ["--shard", "3/8"], []),
    ],
)  # fmt: skip
def test_what_failed_runs_again(
    failures: tuple[str, ...], unfinished: tuple[str, ...], arguments: list[str], targets: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Tests by their names, targets whole, and all of a shard's tests if they did not end."""
    commands: list[list[str]] = []

    def run(command: list[str], output: Path, deadline: float) -> tuple[int, str]:
        commands.append(command)
        return (2, "Killed") if "test-arm" in command else (0, "2 passed in 0.1s")

    monkeypatch.setattr(nightly, "WORK", tmp_path)
    monkeypatch.setattr(nightly, "RECENT", tmp_path / "recent.jsonl")
    monkeypatch.setattr(nightly, "_run", run)
    monkeypatch.setattr(nightly, "commit", lambda: "bbbb")
    last = Result("3/8", "2026-11-28 10:00", "aaaa", "Zen", 10.0, 5, 1, failures, unfinished, "cc")
    result = nightly.run_again(last, 2, 0.0)
    tests = [command for command in commands if "pytest" in command]
    assert [command[command.index("--whole") + 1 : command.index("-n")] for command in tests] == [arguments] * bool(
        arguments
    )
    assert [command[2] for command in commands if command[0] == "make"] == targets
    assert result.passed == 2 * bool(arguments) + 5 * (arguments[:1] != ["--shard"])
    assert result.failures == (("make test-arm: status 2, test-arm.txt",) if "test-arm" in targets else ())
    assert (result.shard, result.whole, result.commit, result.division, result.unfinished) == (
        "3/8",
        "aaaa",
        "bbbb",
        "cc",
        (),
    )
    assert list(lines_of(latest([last, result])))[2].startswith("| 3/8 | aaaa; what failed: bbbb |")
    assert nightly.run_again(replace(result, commit="dddd", failures=("test/a.py::test_b",)), 2, 0.0).whole == "aaaa"


def test_shards_whose_targets_take_long_run_again_last(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        Result("1/3", "2026-11-28 10:00", "aaaa", "Zen", unfinished=("make test-avx2",)),
        Result("2/3", "2026-11-28 10:00", "aaaa", "Zen", failures=("test/a.py::test_b",)),
        Result("3/3", "2026-11-28 10:00", "aaaa", "Zen"),
    ]
    shards: list[str] = []

    def run_again(last: Result, jobs: int, deadline: float) -> Result:
        shards.append(last.shard)
        return last

    monkeypatch.setattr(nightly, "read_results", lambda: runs)
    monkeypatch.setattr(nightly, "run_again", run_again)
    assert nightly.main(["--again"]) == 1
    assert shards == ["2/3", "1/3"]


@pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "a/b", "1/8/2"])
def test_shards_that_are_none(text: str) -> None:
    with pytest.raises(SystemExit, match=f"shard '{text}': expected which of how many, such as 3/8"):
        parse_shard(text)


def test_what_pytest_prints_is_read() -> None:
    output = (
        "....F.E\nFAILED test/a.py::test_b[1] - AssertionError: 1 != 2\nERROR test/c.py - ImportError\n"
        "1 failed, 88 passed, 34 skipped, 5 warnings, 1 error in 42.27s\n"
    )
    assert read_summary(output) == (
        88,
        34,
        ["test/a.py::test_b[1] - AssertionError: 1 != 2", "test/c.py - ImportError"],
    )
    assert read_summary("Killed\n") == (0, 0, [])


def test_tests_that_end_in_time_print_what_failed(tmp_path: Path) -> None:
    """Also if a shell started the command in the background, where interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        command = [sys.executable, "-c", "import time; print('began', flush=True); time.sleep(60)"]
        status, output = nightly._run(command, tmp_path / "output", time.monotonic() + 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert status is None and output.startswith("began") and "KeyboardInterrupt" in output


ENDED = """
import sys, threading
from pathlib import Path
from mirlo.benchmarks import nightly
nightly.WORK, nightly.RECENT = Path(sys.argv[1]), Path(sys.argv[1]) / "recent"
nightly.parts_of = lambda number, count: ["first", "second"]
runs = iter(sys.argv[2:])
def _run(command, output, deadline, run=nightly._run):
    return run([sys.executable, "-c", next(runs)], output, deadline)
nightly._run = _run
nightly.run_shard(1, 8, 1, 1e9)
"""
"""Runs a shard whose tests and targets are these programs."""
WAIT = "import time; print('began', flush=True); time.sleep(60)"
PASS = "print('5 passed in 0.10s')"


def record_of(folder: Path, *programs: str, ended_by: signal.Signals | None = None) -> Result:
    """Return the record of a shard of these programs, which this signal ends in the one that waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENDED, folder, *programs], cwd=nightly.ROOT, stdout=subprocess.DEVNULL
    )
    if ended_by is not None:
        while not any(path.read_text() == "began\n" for path in folder.glob("*.txt")):
            time.sleep(0.05)
        process.send_signal(ended_by)
    process.wait(60)
    (result,) = nightly._read(folder / "recent")
    return result


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_signal_ends_is_not_finished(number: signal.Signals, tmp_path: Path) -> None:
    for place, left in enumerate((("tests", "make first", "make second"), ("make first", "make second"))):
        (folder := tmp_path / str(place)).mkdir()
        result = record_of(folder, *[PASS] * place, WAIT, ended_by=number)
        assert (result.passed, result.failures, result.unfinished) == (5 * place, (), left)


def test_a_command_that_a_signal_ends_is_not_finished(tmp_path: Path) -> None:
    """The targets after it run, and one that fails is a failure."""
    ends = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    result = record_of(tmp_path, ends, "raise SystemExit(2)", PASS)
    assert result.unfinished == ("tests",) and result.failures == ("make first: status 2, first.txt",)


def test_the_table_has_the_last_run_of_each_shard() -> None:
    first = Result("1/3", "2026-11-28 10:00", "aaaa", "Zen", 10.0, 5, 1, ("test/a.py::test_b",))
    results = [
        replace(first, shard="4/8"), first, replace(first, shard="3/3", unfinished=("make stages",)),
        replace(first, commit="bbbb", failures=()),
    ]  # fmt: skip
    lines = list(lines_of(latest(results)))
    assert lines[2].startswith("| 1/3 | bbbb |") and lines[3].endswith("| make stages |") and lines[4] == ""
    assert lines[5] == "2 of 3 shards (not 2) at aaaa, bbbb: 10 tests passed, 1 failed. Processor: Zen."
    assert lines[7:] == ["- 3/3: test/a.py::test_b"]
    assert list(lines_of([])) == ["No shard has run: `make nightly SHARD=1/8`."]


def test_runs_of_other_checkouts_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are committed are read together with those of this checkout, which move there."""
    monkeypatch.setattr(nightly, "COMMITTED", tmp_path / "committed.jsonl")
    monkeypatch.setattr(nightly, "RECENT", tmp_path / "recent.jsonl")
    nightly.commit_results()
    assert nightly.read_results() == [] and nightly.COMMITTED.read_text() == ""
    first = Result("1/2", "2026-11-28 10:00", "aaaa", "Zen", division="ab")
    later = replace(first, shard="2/2", date="2026-11-29 10:00", failures=("test/a.py::test_b",))
    for path, result in ((nightly.RECENT, first), (nightly.COMMITTED, later)):
        path.write_text(json.dumps(asdict(result)) + "\n")
    assert nightly.read_results() == [first, later]
    nightly.commit_results()
    assert nightly.read_results() == [first, later] and not nightly.RECENT.exists()


def test_shards_of_different_costs_are_no_round() -> None:
    first = Result("1/2", "2026-11-28 10:00", "aaaa", "Zen", division="ab")
    second = replace(first, shard="2/2", date="2026-11-29 10:00")
    assert not any("other costs" in line for line in lines_of([first, second]))
    assert any(line.endswith("none of these shards: 1/2.") for line in lines_of([first, replace(second, division="c")]))


def test_the_division_follows_from_the_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = nightly.division()
    monkeypatch.setattr(nightly, "MEASURED", tmp_path / "costs.txt")
    without = nightly.division()
    nightly.MEASURED.write_text("1 test/a.py::test_b\n")
    assert len({before, without, nightly.division()}) == 3
