"""What the tests cost: a table of the slowest, and an error for each file above the budget.

pytest -q -n 2 --dist loadfile --cpu-times=FILE && python -m benchmarks.test_times FILE

A file of tests is what one process runs: the slowest bounds how well the tests can be divided.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

BUDGET = 30.0
"""Most seconds of processor time for a file in `make test`."""
WHOLE = 750.0
"""Most seconds of processor time for all files: 8 minutes on two cores are 960, with 130 for set-up, linter, types and
lit, and with both cores busy for nine tenths of the time."""
COSTS = Path(__file__).resolve().parents[1] / "test" / "costs.txt"
"""What `test/conftest.py` orders files by."""
LEAST = 2.0
"""Seconds below which a file is not listed there: it is run after all others."""
LEAST_OF_CASES = 0.3
"""Seconds of all cases of a function below which it is not added there: all of its cases are run."""
SKIPPED = 0.02
"""Seconds of a case below which it was skipped, or is as good as that: what is listed stays."""
SHOWN = 50
NO_TEST = "imports, collection and what runs between tests"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.test_times", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("file", type=Path, help="what --cpu-times wrote")
    parser.add_argument("--write", action="store_true", help=f"write the costs of files to {COSTS.name}, for the order")
    options = parser.parse_args(arguments)
    tests, files = read(options.file)
    if options.write:
        lines = costs(files, read_cases(options.file), read_costs(COSTS))
        COSTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(table(tests, files)))
    over = [f"{name}: {seconds:.0f} s" for name, seconds in files.most_common() if seconds > BUDGET and name != NO_TEST]
    if over:
        print(
            f"\nmore than {BUDGET:.0f} s of processor time in a file of `make test`: {', '.join(over)}. Share what its "
            "tests compile, or mark the long ones `@pytest.mark.sample(N)`: `make nightly` runs all cases",
            file=sys.stderr,
        )
    total = sum(files.values())
    if total > WHOLE:
        print(f"\n{total:.0f} s of processor time, more than {WHOLE:.0f} s for all of `make test`", file=sys.stderr)
    return 1 if over or total > WHOLE else 0


def read(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the seconds of test functions and of files."""
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, seconds = json.loads(line)
        tests[name.partition("[")[0] or NO_TEST] += seconds
        files[name.partition("::")[0] or NO_TEST] += seconds
    return tests, files


def read_cases(path: Path) -> dict[str, list[float]]:
    """Return the seconds of each case of the functions that have several."""
    cases_by_function: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in path.read_text(encoding="utf-8").splitlines():
        name, phase, seconds = json.loads(line)
        function, _, case = name.partition("[")
        if case and phase == "call":
            cases_by_function[function][case] += seconds
    return {function: [*cases.values()] for function, cases in cases_by_function.items()}


def read_costs(path: Path) -> dict[str, float]:
    """Return the listed costs by file and function: the time of a sample does not determine that of all cases."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for seconds, name in rows}


def costs(files: Counter[str], cases: dict[str, list[float]], recorded: dict[str, float]) -> Iterator[str]:
    """Yield lines of seconds and a name: of files, the longest first, then of one case of functions.

    What was listed of files that were not measured stays, where they still are.
    """
    left = {name: cost for name, cost in recorded.items() if is_left(name, files)}
    measured = {name: seconds for name, seconds in files.items() if seconds >= LEAST and name != NO_TEST}
    listed = measured | {name: cost for name, cost in left.items() if "::" not in name}
    for name, seconds in sorted(listed.items(), key=lambda row: (-round(row[1]), row[0])):
        yield f"{seconds:.0f} {name}"
    averages = {name: cost for name, cost in left.items() if "::" in name}
    for function, each in cases.items():
        average = sum(each) / len(each)
        if function in recorded and average < SKIPPED:
            average = recorded[function]
        if function in recorded or sum(each) >= LEAST_OF_CASES:
            averages[function] = average
    for function, average in sorted(averages.items()):
        yield f"{average:.2g} {function}"


def is_left(name: str, files: Counter[str]) -> bool:
    """Return whether a recorded cost is of a file that was not measured."""
    file = name.partition("::")[0]
    return file not in files and (COSTS.parents[1] / file).exists()


def table(tests: Counter[str], files: Counter[str]) -> Iterator[str]:
    """Yield the slowest test functions as a table, and the sum."""
    counts = [len(costs.keys() - {NO_TEST}) for costs in (tests, files)]
    yield f"{sum(files.values()):.0f} s of processor time in {counts[0]} test functions of {counts[1]} files"
    yield ""
    yield "| seconds | test |"
    yield "| ---: | --- |"
    yield from (f"| {seconds:.1f} | `{name}` |" for name, seconds in tests.most_common(SHOWN))


if __name__ == "__main__":
    sys.exit(main())
