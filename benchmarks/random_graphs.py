"""Run the random graphs that no run had yet on a target, and record them; show how many ran, with how many findings.

python -m benchmarks.random_graphs llvm --count 20000 --jobs 4    # the next 20,000 graphs, and 2,000 seeds of `empty`
python -m benchmarks.random_graphs spirv --level 2 --minutes 60   # as many as an hour permits
python -m benchmarks.random_graphs --status                       # what ran, by target and level

Seeds continue after those of the record: results/random_graphs.jsonl, which is committed, and the runs of this
checkout since, in .cache/nightly, which `python -m benchmarks.nightly --write` moves there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from mirlo.benchmarks.checkout import ROOT, WORK, commit, processor
from mirlo.benchmarks.run_records import append_record, move_records, read_records

COMMITTED = ROOT / "benchmarks" / "results" / "random_graphs.jsonl"
"""A line for each run of consecutive seeds at a commit."""
RECENT = WORK / "random_graphs.jsonl"
"""The same for the runs of this checkout that are not committed."""
LEVELS = (0, 1, 2, 3)
FIRST = {"graphs": 1_000_000, "empty": 100_000}
"""The first seeds of the record: smaller ones ran at other commits, which docs/fuzzing.md lists."""
EMPTY_SHARE = 10
"""Graphs for each seed of `empty`."""
CHUNK, TIMED_CHUNK = 500, 50
"""Seeds of each process between two lines of the record, which an interrupted run loses; fewer in a limited time."""


@dataclass(frozen=True)
class SeedRun:
    """A run of consecutive seeds for a target, each at some levels of optimization."""

    mode: str
    target: str
    levels: tuple[int, ...]
    first: int
    count: int
    states: dict[str, int]
    found: tuple[str, ...]
    """The seeds that show a bug, each with what it shows."""
    seconds: float
    """Processor time, with the compiler's that target `c` runs."""
    commit: str
    date: str
    processor: str
    fixed: dict[str, str] = field(default_factory=dict)
    """By seed of `found`, the commit since which it shows none."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make graphs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", nargs="?", help="the target that graphs are compiled for")
    parser.add_argument("--level", type=int, choices=LEVELS, help="the only level of optimization (default: all)")
    parser.add_argument("--count", type=int, default=20_000, help="graphs; a tenth as many seeds of `empty`")
    parser.add_argument("--minutes", type=float, help="start no further seeds after this many minutes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--status", action="store_true", help="show what ran")
    options = parser.parse_args(arguments)
    failed = False
    if options.target is not None:
        levels = LEVELS if options.level is None else (options.level,)
        deadline = float("inf") if options.minutes is None else time.monotonic() + 60 * options.minutes
        failed = not run(options.target, levels, options.count, options.jobs, deadline)
    if options.status or options.target is not None:
        print("\n".join(lines_of(read_runs())))
    return 1 if failed else 0


def run(target: str, levels: tuple[int, ...], count: int, jobs: int, deadline: float) -> bool:
    """Run the next seeds, and record them; return whether none shows a bug."""
    modes = [("graphs", levels, count), *(("empty", (level,), count // EMPTY_SHARE) for level in levels)]
    is_right, chunk = True, jobs * (CHUNK if deadline == float("inf") else TIMED_CHUNK)
    for mode, at, total in modes:
        done = 0
        while done < total and time.monotonic() < deadline:
            seeds = min(total - done, chunk)
            result = run_seeds(mode, target, at, next_seed(read_runs(), mode, target, at), seeds, jobs)
            append_record(RECENT, result)
            is_right &= not result.found
            done += seeds
    return is_right


def run_seeds(mode: str, target: str, levels: tuple[int, ...], first: int, count: int, jobs: int) -> SeedRun:
    """Run consecutive seeds with `mirlo fuzz`; models that show a bug are written to the folder `found`."""
    level = [f"--opt-level={levels[0]}"] if len(levels) == 1 else []
    command = [
        sys.executable, "-m", "mirlo", "fuzz", mode, f"--target={target}", *level, f"--seed={first}",
        f"--count={count}", f"--processes={jobs}", "--timeout=300", "--output=found", "--json",
    ]  # fmt: skip
    name, before = commit(), os.times()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    after = os.times()
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}, and no report") from None
    seconds = sum(after[2:4]) - sum(before[2:4])
    findings = tuple(f"{entry['seed']}: {entry['state']}: {entry['what']}" for entry in report["found"])
    findings = tuple(text.replace(f"{ROOT}/", "") for text in findings)  # places in files of this checkout
    return SeedRun(
        mode, target, levels, first, report["count"], report["states"], findings, round(seconds, 1), name,
        f"{datetime.now(timezone.utc):%Y-%m-%d}", processor(),
    )  # fmt: skip


def next_seed(runs: Iterable[SeedRun], mode: str, target: str, levels: tuple[int, ...]) -> int:
    """Return the first seed after those of all runs of a mode for a target at these levels."""
    ends = [each.first + each.count for each in runs if (each.mode, each.target, each.levels) == (mode, target, levels)]
    return max(ends, default=FIRST[mode])


def read_runs() -> list[SeedRun]:
    """Return all runs, the committed ones first."""
    return read_records(_run, COMMITTED, RECENT)


def commit_runs() -> None:
    """Move the runs of this checkout to the file that is committed; those that continue others become one line."""
    move_records(joined_runs(read_runs()), RECENT, COMMITTED)


def joined_runs(runs: Iterable[SeedRun]) -> list[SeedRun]:
    """Join runs that continue others at the same commit, and order all by mode, target and seed."""
    result: list[SeedRun] = []
    for each in sorted(runs, key=lambda run: (run.mode, run.target, run.levels, run.first)):
        last = result[-1] if result else None
        if last is None or _place(last) != _place(each) or last.first + last.count != each.first:
            result.append(each)
            continue
        result[-1] = replace(
            last, count=last.count + each.count, states=dict(Counter(last.states) + Counter(each.states)),
            found=last.found + each.found, seconds=round(last.seconds + each.seconds, 1),
            fixed=last.fixed | each.fixed,
        )  # fmt: skip
    return result


def _place(run: SeedRun) -> tuple[object, ...]:
    return run.mode, run.target, run.levels, run.commit, run.processor


def _run(**fields: Any) -> SeedRun:
    """Return a run, whose lists were tuples."""
    return SeedRun(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


def lines_of(runs: Sequence[SeedRun]) -> Iterator[str]:
    """Yield the table of what ran for each target and level, and the findings."""
    if not runs:
        yield "No random graphs are recorded: `make graphs TARGET=llvm`."
        return
    groups: dict[tuple[str, str, int], list[SeedRun]] = defaultdict(list)
    for each in sorted(runs, key=lambda run: (run.mode != "graphs", run.target, run.levels, run.first)):
        for level in each.levels:
            groups[each.mode, each.target, level].append(each)
    yield "| mode | target | level | seeds | refused | findings | not fixed | CPU s each | commits |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for (mode, target, level), inside in groups.items():
        count, findings = sum(each.count for each in inside), sum(len(each.found) for each in inside)
        refused = sum(each.states.get("refused", 0) for each in inside)
        left = findings - sum(len(each.fixed) for each in inside)
        # All levels of a seed are compiled together: each has its share of the time.
        seconds = sum(each.seconds / len(each.levels) for each in inside) / max(count, 1)
        commits = list(dict.fromkeys(each.commit for each in inside))
        shown = commits[0] if len(commits) == 1 else f"{commits[0]} to {commits[-1]}"
        cells = (mode, target, level, f"{count:,}", refused, findings, left, f"{seconds:.2f}", shown)
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield f"Processor: {'; '.join(sorted({each.processor for each in runs}))}."
    findings = [(each, text) for each in runs for text in each.found]
    if findings:
        yield ""
    for each, text in findings:
        fixed = each.fixed.get(text.partition(":")[0])
        yield f"- {each.mode}, {each.target} at {each.commit}, seed {text}" + (f" (fixed: {fixed})" if fixed else "")


if __name__ == "__main__":
    sys.exit(main())
