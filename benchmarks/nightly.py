"""Run a shard of the nightly suite, or show which shards have run at which commit, and what failed.

python -m benchmarks.nightly 3/8 --jobs 2    # the third of eight shards
python -m benchmarks.nightly --again         # run again what failed in the last run of each shard
python -m benchmarks.nightly --status        # the last run of each shard
python -m benchmarks.nightly --write         # write that to docs/nightly.md, and runs to results/nightly.jsonl
python -m benchmarks.nightly --costs         # write what the tests cost in the shards that have run

A shard has its part of all tests (`pytest --whole --shard 3/8`), and of `PARTS`, other targets of the Makefile. Files
of tests are divided by what they cost, as recorded in test/costs.txt and test/nightly_costs.txt. Shards add up to a
round, on whichever machines they run, if they are divided by the same costs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from zlib import crc32

from mirlo.benchmarks import random_graphs
from mirlo.benchmarks.checkout import ROOT, WORK, commit, processor
from mirlo.benchmarks.test_times import COSTS, read_costs
from mirlo.runtime.processes import end_group

COMMITTED = ROOT / "benchmarks" / "results" / "nightly.jsonl"
"""A line for each run of a shard."""
RECENT = WORK / "results.jsonl"
"""The same for the runs of this checkout that are not committed."""
MEASURED = ROOT / "test" / "nightly_costs.txt"
"""Seconds of processor time of one case of functions, as `make nightly` runs them: `--costs` writes them."""
PAGE = ROOT / "docs" / "nightly.md"
BEGIN, END = "<!-- begin shards -->", "<!-- end shards -->"
BEGIN_GRAPHS, END_GRAPHS = "<!-- begin graphs -->", "<!-- end graphs -->"
PARTS = {
    "combinations-today": 180.0, "stages-today": 80.0, "test-avx512": 250.0, "test-avx2": 750.0, "test-sse42": 300.0,
    "test-qemu": 250.0, "test-cross": 300.0, "test-arm": 400.0, "test-ethos-u": 300.0, "nightly-tensix": 400.0,
}  # fmt: skip
"""Targets of the Makefile beside the tests, with seconds of processor time."""
SHARDS, MINUTES = 8, 90
"""The usual number of shards, and what each takes at most on two cores, with set-up."""
HEAVY = 30.0
"""Seconds of processor time from which units are balanced; below, a checksum of the name chooses the shard, so that a
new test leaves the others where they are."""
LARGEST = 600.0
"""Most seconds of processor time of a file that is kept together."""
UNMEASURED = 0.05
"""Seconds of processor time of a case of which nothing is recorded."""
LEAST = 2.0
"""Seconds of all cases of a function below which `--costs` leaves it out."""
ENDED = "pytest ended"
"""How a failure of pytest itself begins."""
INTERRUPTED = 2
"""The status of pytest after an interrupt, and after errors of collection, which it lists."""
GRACE = 60.0
"""Seconds that tests have to end after an interrupt."""


@dataclass(frozen=True)
class Result:
    """What a run of a shard has found."""

    shard: str
    date: str
    commit: str
    processor: str
    minutes: float = 0.0
    passed: int = 0
    skipped: int = 0
    failures: tuple[str, ...] = ()
    """Tests and targets that failed, with the first line of why."""
    unfinished: tuple[str, ...] = ()
    """What did not end in time, or what a signal ended."""
    division: str = ""
    """A checksum of the costs by which shards are divided."""
    whole: str = ""
    """The commit at which the whole shard ran, where only what had failed there ran again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make nightly", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shard", nargs="?", help="which of how many: 3/8")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests")
    parser.add_argument("--minutes", type=float, help=f"end after this many minutes; {MINUTES} for a shard of {SHARDS}")
    parser.add_argument("--again", action="store_true", help="run again what failed in the last run of each shard")
    parser.add_argument("--status", action="store_true", help="show the last run of each shard")
    parser.add_argument("--write", action="store_true", help=f"write that to {PAGE.relative_to(ROOT)}, too")
    parser.add_argument("--costs", action="store_true", help=f"write {MEASURED.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.costs:
        write_costs()
    if options.shard:
        number, count = parse_shard(options.shard)
        minutes = options.minutes or SHARDS * MINUTES / min(count, SHARDS)
        result = run_shard(number, count, options.jobs, time.monotonic() + 60 * minutes)
        print("\n".join(lines_of([result])))
        return 1 if result.failures or result.unfinished else 0
    if options.again:
        deadline = time.monotonic() + 60 * (options.minutes or MINUTES)
        failed = sorted(failing(latest(read_results())), key=cost_again)
        repeated = [run_again(each, options.jobs, deadline) for each in failed]
        print("\n".join(lines_of(repeated)) if repeated else "Nothing failed in the last run of each shard.")
        return 1 if failing(repeated) else 0
    if options.status or options.write:
        if options.write:
            random_graphs.commit_runs()
            commit_results()
        shards = list(lines_of(latest(read_results())))
        graphs = list(random_graphs.lines_of(random_graphs.read_runs()))
        print("\n".join([*shards, "", *graphs]))
        if options.write:
            write_table(shards, BEGIN, END)
            write_table(graphs, BEGIN_GRAPHS, END_GRAPHS)
    return 0


def write_table(lines: Sequence[str], begin: str, end: str) -> None:
    """Write lines to the page between two comments."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text("\n".join([before + begin, *lines, end]) + rest.partition(end)[2], encoding="utf-8")


def parse_shard(text: str) -> tuple[int, int]:
    """Return the number of a shard, from 1, and how many there are."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise SystemExit(f"shard '{text}': expected which of how many, such as 3/{SHARDS}")
    return int(match[1]), int(match[2])


def parts_of(number: int, count: int) -> list[str]:
    """Return the targets of the Makefile that a shard runs."""
    places, _ = _balanced(PARTS, [0.0] * count)
    return [name for name, place in places.items() if place == number - 1]


def shard_of(names: Sequence[str], number: int, count: int) -> set[str]:
    """Return the tests of a shard, by the names of all tests."""
    costs = read_costs(COSTS) | (read_costs(MEASURED) if MEASURED.exists() else {})
    units = _units(names, costs)
    totals = {unit: sum(_cost(name, costs) for name in inside) for unit, inside in units.items()}
    _, loads = _balanced(PARTS, [0.0] * count)
    places, _ = _balanced({unit: total for unit, total in totals.items() if total >= HEAVY}, loads)
    places |= {unit: crc32(unit.encode()) % count for unit, total in totals.items() if total < HEAVY}
    return {name for unit, inside in units.items() if places[unit] == number - 1 for name in inside}


def division() -> str:
    """Return a checksum of what decides which shard a test is in."""
    texts = [path.read_text(encoding="utf-8") for path in (COSTS, MEASURED) if path.exists()]
    return f"{crc32(json.dumps([PARTS, HEAVY, LARGEST, *texts]).encode()):08x}"


def _balanced(costs: Mapping[str, float], loads: Sequence[float]) -> tuple[dict[str, int], list[float]]:
    """Return the part of each unit, distributing the costliest first to the least loaded part, and the loads."""
    places, loads = {}, list(loads)
    for unit, cost in sorted(costs.items(), key=lambda row: (-row[1], row[0])):
        places[unit] = loads.index(min(loads))
        loads[places[unit]] += cost
    return places, loads


def _units(names: Sequence[str], costs: Mapping[str, float]) -> dict[str, list[str]]:
    """Return tests that stay together: those of a file, of a function of a long one, or some cases of a long one."""
    units = _grouped(names, lambda name: name.partition("::")[0])
    for file, inside in list(units.items()):
        if sum(_cost(name, costs) for name in inside) <= LARGEST:
            continue
        del units[file]
        for function, cases in _grouped(inside, lambda name: name.partition("[")[0]).items():
            pieces = -int(-sum(_cost(name, costs) for name in cases) // LARGEST)
            units |= {f"{function} {piece}": cases[piece::pieces] for piece in range(pieces)}
    return units


def _grouped(names: Sequence[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[key(name)].append(name)
    return dict(groups)


def _cost(name: str, costs: Mapping[str, float]) -> float:
    return costs.get(name.partition("[")[0], UNMEASURED)


def run_shard(number: int, count: int, jobs: int, deadline: float) -> Result:
    """Run the tests and the targets of a shard, and record the results; what a signal ends is not finished."""
    result = Result(f"{number}/{count}", _now(), commit(), processor(), division=division())
    return _record(result, ["--shard", result.shard], parts_of(number, count), jobs, deadline)


def failing(results: Sequence[Result]) -> list[Result]:
    """Return the runs in which something failed or was not finished."""
    return [each for each in results if each.failures or each.unfinished]


def parts_again(last: Result) -> list[str]:
    """Return the targets of the Makefile that failed in a shard, or were not finished."""
    return [part for part in PARTS if any(_is_of(part, each) for each in (*last.failures, *last.unfinished))]


def cost_again(last: Result) -> float:
    """Return the processor time of the targets that run again; the tests that failed are few."""
    return sum(PARTS[part] for part in parts_again(last))


def run_again(last: Result, jobs: int, deadline: float) -> Result:
    """Run what failed in a shard, or was not finished, and record what still fails; tests that passed count as such."""
    parts = parts_again(last)
    tests = [test_of(each) for each in last.failures if not each.startswith("make ")]
    again = replace(last, date=_now(), commit=commit(), processor=processor(), whole=last.whole or last.commit)
    if "tests" in last.unfinished or any(each.startswith(ENDED) for each in last.failures):
        tests, again = ["--shard", last.shard], replace(again, passed=0, skipped=0)
    return _record(again, tests, parts, jobs, deadline)


def test_of(failure: str) -> str:
    """Return the name of a test that failed, without why; the name of a case may contain spaces."""
    match = re.match(r"[^\[\s]+(\[.*?\](?= - |$))?", failure)
    return match[0] if match else failure


def _is_of(part: str, failure: str) -> bool:
    return failure == f"make {part}" or failure.startswith(f"make {part}: ")


def _now() -> str:
    return f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}"


def _record(result: Result, tests: Sequence[str], parts: Sequence[str], jobs: int, deadline: float) -> Result:
    """Run tests, none without arguments, and targets; record what they add to a result."""
    WORK.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    name = result.shard.replace("/", "-")
    suffix = f"{name}-again" if result.whole else name
    times = WORK / f"times-{suffix}.jsonl"
    times.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-rfE", "--whole", *tests, "-n", str(jobs), "--dist", "worksteal",
        f"--cpu-times={times}",
    ]  # fmt: skip
    path, ended = WORK / f"tests-{suffix}.txt", 0
    passed, skipped, failures, unfinished = 0, 0, list[str](), list[str]()
    try:
        if tests:
            status, output = _run(command, path, deadline)
            passed, skipped, failures = read_summary(output)
            if status is None or (status == INTERRUPTED and not failures):
                unfinished.append("tests")
            elif status not in (0, 1, 5) or (status == 1 and not failures):
                failures.append(f"{ENDED} with status {status}: {path.name}")
        for part in parts:
            ended += 1
            path = WORK / f"{part}.txt"
            status, output = _run(["make", "--no-print-directory", part, f"JOBS={jobs}"], path, deadline)
            if status is None:
                unfinished.append(f"make {part}")
            elif status:
                of_part = read_summary(output)[2] or [f"status {status}, {path.name}"]
                failures += [f"make {part}: {each}" for each in of_part]
    except KeyboardInterrupt:
        unfinished += ["tests", *(f"make {part}" for part in parts)][ended:]
        if not ended:
            passed, skipped, failures = read_summary(path.read_text(encoding="utf-8", errors="replace"))
    minutes = round((time.monotonic() - started) / 60, 1)
    result = replace(
        result, minutes=minutes, passed=result.passed + passed, skipped=result.skipped + skipped,
        failures=tuple(failures), unfinished=tuple(unfinished),
    )  # fmt: skip
    with RECENT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    return result


def _run(command: Sequence[str], output: Path, deadline: float) -> tuple[int | None, str]:
    """Run a command; return its status, or None after a timeout or if a signal ended it, and its output."""
    print(f"{datetime.now():%H:%M} {' '.join(command)}", flush=True)
    # Commands that a shell starts in the background ignore interrupts, and so would what they start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        status: int | None = None
        try:
            status = process.wait(max(0.0, deadline - time.monotonic()))
            if status < 0:
                status = None
        except subprocess.TimeoutExpired:
            _interrupt(process)
        except KeyboardInterrupt:
            _interrupt(process)
            raise
        except BaseException:
            end_group(process.pid)
            raise
    return status, output.read_text(encoding="utf-8", errors="replace")


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a command, which prints what failed until then, and end it if that takes it too long."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE)
    except BaseException as error:
        end_group(process.pid)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def read_summary(output: str) -> tuple[int, int, list[str]]:
    """Return how many tests passed and were skipped, and those that failed, from what pytest printed."""
    failures = re.findall(r"^(?:FAILED|ERROR) (.*)$", output, re.MULTILINE)
    last = next((line for line in reversed(output.splitlines()) if re.search(r" in \d[\d.]*s", line)), "")
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", last)}
    return counts.get("passed", 0), counts.get("skipped", 0), failures


def read_results() -> list[Result]:
    """Return what all runs of shards have found, the oldest first."""
    return sorted([*_read(COMMITTED), *_read(RECENT)], key=lambda result: result.date)


def _read(path: Path) -> Iterator[Result]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        row = json.loads(line)
        yield Result(**{**row, "failures": tuple(row["failures"]), "unfinished": tuple(row["unfinished"])})


def commit_results() -> None:
    """Move the runs of this checkout to the file that is committed."""
    lines = [json.dumps(asdict(each)) + "\n" for each in read_results()]
    COMMITTED.write_text("".join(lines), encoding="utf-8")
    RECENT.unlink(missing_ok=True)


def latest(results: Sequence[Result]) -> list[Result]:
    """Return the last run of each shard of as many as the last run was one of."""
    count = parse_shard(results[-1].shard)[1] if results else 0
    last_runs = {result.shard: result for result in results if parse_shard(result.shard)[1] == count}
    return sorted(last_runs.values(), key=lambda result: parse_shard(result.shard))


def lines_of(results: Sequence[Result]) -> Iterator[str]:
    """Yield the table of some shards, and their failures."""
    if not results:
        yield "No shard has run: `make nightly SHARD=1/8`."
        return
    yield "| shard | commit | date (UTC) | passed | skipped | failed | minutes | not finished |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"
    for each in results:
        at = f"{each.whole}; what failed: {each.commit}" if each.whole else each.commit
        cells = (each.shard, at, each.date, each.passed, each.skipped, len(each.failures), each.minutes)
        yield f"| {' | '.join(map(str, cells))} | {', '.join(each.unfinished)} |"
    count = parse_shard(results[0].shard)[1]
    missing = sorted({*range(1, count + 1)} - {parse_shard(each.shard)[0] for each in results})
    failed = sum(len(each.failures) for each in results)
    commits = sorted({each.commit for each in results})
    yield ""
    lacking = f" (not {join_numbers(missing)})" if missing else ""
    yield (
        f"{len(results)} of {count} shards{lacking} at {', '.join(commits)}: "
        f"{sum(each.passed for each in results)} tests passed, {failed} failed. "
        f"Processor: {'; '.join(sorted({each.processor for each in results}))}."
    )
    divisions = {each.division for each in results}
    if len(divisions) > 1:
        last = max(results, key=lambda each: each.date).division
        others = ", ".join(each.shard for each in results if each.division != last)
        yield ""
        yield f"Divided by other costs than the last run, so that tests may be in none of these shards: {others}."
    if failed:
        yield ""
        yield from (f"- {each.shard}: {failure}" for each in results for failure in each.failures)


def join_numbers(numbers: Sequence[int]) -> str:
    """Return numbers as text, many of them shortened."""
    shown = ", ".join(map(str, numbers[:SHARDS]))
    return shown if len(numbers) <= SHARDS else f"{shown}, and {len(numbers) - SHARDS} more"


def write_costs() -> None:
    """Write the average cost of a case of functions, measured by the shards that have run; others stay."""
    total: dict[str, float] = defaultdict(float)
    cases: dict[str, set[str]] = defaultdict(set)
    for path in sorted(WORK.glob("times-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, seconds = json.loads(line)
            if name:
                total[name.partition("[")[0]] += seconds
                cases[name.partition("[")[0]].add(name)
    costs = read_costs(MEASURED) if MEASURED.exists() else {}
    costs = {name: cost for name, cost in costs.items() if (ROOT / name.partition("::")[0]).exists()}
    costs |= {name: total[name] / len(cases[name]) for name in total if total[name] >= LEAST}
    lines = [f"{cost:.2g} {name}" for name, cost in sorted(costs.items())]
    MEASURED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
