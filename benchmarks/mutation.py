"""How many seeded single-point changes of the compiler the tests notice.

python -m benchmarks.mutation --map                    # run the tests once: which of them reach which change
python -m benchmarks.mutation --run 40                 # the first 40 of 300 changes; all of them without a number
python -m benchmarks.mutation --run 40 --again         # those that survived, with more tests
python -m benchmarks.mutation --report                 # a table by folder

Changes are made in copies of the tracked files, in `.cache/mutation`. A change is killed if something that `make test`
runs fails with it, and not without it: a test that reaches the change, which fails or takes too long; a test of lit in
the folder that is named as that of the change; the type checker. Tests that do not reach a change cannot
notice it. Few of many tests are tried, and one folder of lit; with `--again`, changes that survived are tried with
more of them, and with all of lit. With `--nightly`, changes that survive are tried with all cases of the same tests,
which `make nightly` runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from threading import Lock

from mirlo.benchmarks.mutants import FOLDERS, Mutant, find_mutants, mutated, with_hits

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "mutation"
SOURCE = WORK / "source"
"""What `--map` copied: the code may change before `--run`."""
MUTANTS = 300
FIRST_TESTS = 6
"""Tests that are tried first: most changes end here, and less is collected."""
MOST_TESTS = 40
"""Tests that are tried with a change: those of other files first."""
MOST_TESTS_AGAIN = 200
"""Tests that are tried with a change that survived those."""
SECONDS = 240
"""Processor time of one process after which the tests of a change are ended; the change counts as killed."""
PATIENCE = 10
"""Wall time after which they are ended, as a multiple of that: tests wait for each other, or the machine is busy."""
HITS = '''"""Record which tests reach a change."""

import os
import pathlib

FOLDER = pathlib.Path({folder!r})
SEEN = set()


def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (number, test) not in SEEN:
        SEEN.add((number, test))
        with open(FOLDER / f"{{os.getpid()}}.txt", "a", encoding="utf-8") as file:
            file.write(f"{{number}}\\t{{test}}\\n")
'''


@dataclass(frozen=True)
class Verdict:
    """What became of a change."""

    mutant: Mutant
    reached_by: int
    """Tests of `make test` that reach the changed statement."""
    killed: str
    """What noticed the change: `test`, `nightly`, or nothing."""
    by: str
    """The test that failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutation", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="which changes are made")
    parser.add_argument("--map", action="store_true", help="find the tests that reach each change")
    parser.add_argument("--run", type=int, nargs="?", const=MUTANTS, help="try so many changes")
    parser.add_argument(
        "--nightly", action="store_true", help="try what survives with all cases of the tests that reach it, too"
    )
    parser.add_argument("--again", action="store_true", help="try what survived with more tests")
    parser.add_argument("--report", action="store_true", help="print the table")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the tests, or changes at a time")
    options = parser.parse_args(arguments)
    if options.map:
        copy_source()
    mutants = choose(find_mutants(SOURCE), MUTANTS, options.seed) if options.map or options.run else []
    if options.map:
        make_map(mutants, options.jobs)
    if options.run:
        try_all(mutants[: options.run], read_map(), options.jobs, Effort(options.nightly, options.again))
    if options.report:
        print("\n".join(report(read_verdicts())))
    return 0


@dataclass(frozen=True)
class Effort:
    """Which tests are tried with a change that the cheapest ones do not notice."""

    nightly: bool
    """All cases of the tests that reach it."""
    again: bool
    """More tests that reach it, and all of lit."""


def choose(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return changes in a random order in which folders take turns, and kinds of changes within each."""
    source = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        groups[mutant.folder, mutant.kind].append(mutant)
    for group in groups.values():
        source.shuffle(group)
    folders = {folder: [group for (own, _), group in sorted(groups.items()) if own == folder] for folder in FOLDERS}
    for kinds in folders.values():
        source.shuffle(kinds)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(folders.values()):
        for kinds in folders.values():
            if kinds:
                chosen.append(kinds[0].pop())
                kinds.append(kinds.pop(0))
                kinds[:] = [group for group in kinds if group]
    return [Mutant(**{**asdict(mutant), "number": number}) for number, mutant in enumerate(chosen[:count])]


def copy_source() -> None:
    """Copy the tracked files."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, SOURCE / name, follow_symlinks=False)


def make_map(mutants: Sequence[Mutant], jobs: int) -> None:
    """Run the tests with a record of who reaches the changes."""
    tree = Tree(WORK / "map")
    hits = WORK / "hits"
    shutil.rmtree(hits, ignore_errors=True)
    hits.mkdir(parents=True)
    (tree.root / "mutation_hits.py").write_text(HITS.format(folder=str(hits)), encoding="utf-8")
    for path in sorted({mutant.path for mutant in mutants}):
        own = [mutant for mutant in mutants if mutant.path == path]
        (tree.root / path).write_text(with_hits((SOURCE / path).read_text(encoding="utf-8"), own), encoding="utf-8")
    times = WORK / "times.jsonl"
    times.unlink(missing_ok=True)
    tree.run_tests(["-n", str(jobs), "--dist", "loadfile", f"--cpu-times={times}"], None)
    reached: dict[int, set[str]] = defaultdict(set)
    for file in hits.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            number, _, test = line.partition("\t")
            reached[int(number)].add(test)
    seconds = seconds_alone([json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()])
    # Tests that tests run are left out: they have no costs.
    reaching = {number: sorted(tests & seconds.keys()) for number, tests in sorted(reached.items())}
    (WORK / "map.json").write_text(json.dumps({"reached": reaching, "seconds": seconds}), encoding="utf-8")


def seconds_alone(measured: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """Return what each test costs that runs alone: with the dearest setup of its file, which others share."""
    own: dict[str, float] = defaultdict(float)
    shared: dict[str, float] = defaultdict(float)
    for test, phase, cpu in measured:
        if phase == "setup":
            file = test.partition("::")[0]
            shared[file] = max(shared[file], cpu)
        else:
            own[test] += cpu
    return {test: cpu + shared[test.partition("::")[0]] for test, cpu in own.items()}


def read_map() -> dict[int, list[str]]:
    """Return the tests that reach each change, those first that are tried first."""
    content = json.loads((WORK / "map.json").read_text(encoding="utf-8"))
    seconds: dict[str, float] = content["seconds"]
    return {int(number): in_turns(tests, seconds) for number, tests in content["reached"].items()}


def in_turns(tests: Sequence[str], seconds: dict[str, float]) -> list[str]:
    """Return tests by what they cost, with the files taking turns."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: seconds.get(test, 1.0)):
        files[test.partition("::")[0]].append(test)
    ranked = [(turn, seconds.get(test, 1.0), test) for own in files.values() for turn, test in enumerate(own)]
    return [test for _, _, test in sorted(ranked)]


class Tree:
    """A copy of the tracked files in which a change is made and tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "mirlo"
        """A folder of this name is the package `mirlo` for what runs in it."""
        self._environment = {
            # Bytecode is kept outside of the copy, which is made again and again.
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }  # fmt: skip
        self.restore()

    def restore(self) -> None:
        """Copy the tracked files again: tests may have left something."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(SOURCE, self.root, symlinks=True)

    def change(self, mutant: Mutant) -> None:
        """Make a change in fresh files."""
        self.restore()
        text = (SOURCE / mutant.path).read_text(encoding="utf-8")
        (self.root / mutant.path).write_text(mutated(text, mutant), encoding="utf-8")

    def judge(self, mutant: Mutant, tests: Sequence[str], effort: Effort) -> Verdict:
        """Make a change and run what may notice it, among it the tests that reach it."""
        # What is computed when a module is imported is reached by the tests of its folder.
        first = tests[:FIRST_TESTS] or neighbours(mutant)
        most = MOST_TESTS_AGAIN if effort.again else MOST_TESTS
        killed, by = "test", self.failing(mutant, first)
        for start in range(FIRST_TESTS, min(most, len(tests)), MOST_TESTS):
            by = by or self.failing(mutant, tests[start : min(start + MOST_TESTS, most)])
        by = by or self.failing_lit(mutant, effort.again) or self.failing_types(mutant)
        if not by and tests and effort.nightly:
            functions = list(dict.fromkeys(test.partition("[")[0] for test in tests))[:MOST_TESTS]
            killed, by = "nightly", self.failing(mutant, functions, "--whole")
        return Verdict(mutant, len(tests), killed if by else "", by)

    def failing(self, mutant: Mutant, tests: Sequence[str], *options: str) -> str:
        """Return the first of these tests that fails with a change and does not without it."""
        ignored: list[str] = []
        for _ in range(MOST_TESTS if tests else 0):
            self.change(mutant)
            failure = self.run_tests(["-x", *options, *tests, *(f"--deselect={test}" for test in ignored)], SECONDS)
            if failure in ("", "timeout"):
                return failure
            self.restore()
            if failure == "import":
                return "" if self.run_tests(["--collect-only", *tests], SECONDS) else failure
            if not self.run_tests([*options, failure], SECONDS):
                return failure
            ignored.append(failure)
        return ""

    def failing_lit(self, mutant: Mutant, everywhere: bool) -> str:
        """Return the first test of lit, of its folder or of all, that fails with a change and not without it."""
        files = lit_files(mutant, everywhere)
        if not files:
            return ""
        self.change(mutant)
        failure = self.run_lit(files)
        if not failure:
            return ""
        self.restore()
        return failure if failure == "import" or not self.run_lit([failure]) else ""

    def failing_types(self, mutant: Mutant) -> str:
        """Return the type checker, if it finds a change."""
        self.change(mutant)
        if not self._finds_types():
            return ""
        self.restore()
        return "" if self._finds_types() else "mypy"

    def _finds_types(self) -> bool:
        command = [sys.executable, "-m", "mypy", "--cache-dir", str(self.folder / "types")]
        return subprocess.run(command, cwd=self.root, env=self._environment, capture_output=True).returncode != 0

    def run_lit(self, files: Sequence[str]) -> str:
        """Run files of lit in the copy; return which failed first, or nothing."""
        command = [
            sys.executable,
            "-c",
            "from lit.main import main; main()",
            "-q",
            "--workers=1",
            "--max-failures=1",
        ]
        limit = f"--max-time={SECONDS * (1 + len(files) // MOST_TESTS)}"
        done = subprocess.run(
            [*command, limit, *files], cwd=self.root, env=self._environment, capture_output=True, text=True
        )
        if done.returncode == 0:
            return ""
        failed = re.findall(r"^FAIL: .*?:: (\S+)", done.stdout, re.MULTILINE)
        # What cannot be imported fails before a test does.
        return next((file for file in files if failed and file.endswith(failed[0])), "import")

    def run_tests(self, arguments: Sequence[str], seconds: int | None) -> str:
        """Run tests in the copy; return which failed first, `timeout`, `import`, or nothing."""
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *arguments]
        with subprocess.Popen(
            command, cwd=self.root, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (seconds, seconds)) if seconds else None,
        ) as running:  # fmt: skip
            try:
                output, _ = running.communicate(timeout=PATIENCE * seconds if seconds else None)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)  # with the processes that tests have started
                return "timeout"
        if running.returncode == -signal.SIGKILL:
            return "timeout"
        (self.folder / "output.txt").write_text(output, encoding="utf-8")
        failed = [line.split(" - ")[0] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if failed:
            return failed[0].partition(" ")[2]
        return "" if running.returncode in (0, 5) else "import"


def try_all(mutants: Sequence[Mutant], tests: dict[int, list[str]], jobs: int, effort: Effort) -> None:
    """Try changes, as many at a time as there are jobs, and keep each verdict."""
    known = {verdict.mutant: verdict for verdict in read_verdicts()}
    survived = {mutant for mutant, verdict in known.items() if not verdict.killed}
    waiting = iter([mutant for mutant in mutants if (mutant in survived if effort.again else mutant not in known)])
    lock = Lock()

    def work(number: int) -> None:
        tree = Tree(WORK / f"tree{number}")
        while True:
            with lock:
                mutant = next(waiting, None)
            if mutant is None:
                return
            verdict = tree.judge(mutant, tests.get(mutant.number, []), effort)
            with lock, open(WORK / "verdicts.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
                print(describe(verdict), flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))


def lit_files(mutant: Mutant, everywhere: bool) -> list[str]:
    """Return files of lit, those in the folder of tests that is named as that of a change, or all; like ones first."""
    folder = Path("test", *Path(mutant.path).parts[:-1])
    while not (SOURCE / folder).is_dir():
        folder = folder.parent
    words = set(Path(mutant.path).stem.split("_"))
    kinds = ("*.mlir", "*.test") if everywhere else ("*.mlir",)
    paths = [path for kind in kinds for path in (SOURCE / ("test" if everywhere else folder)).rglob(kind)]
    files = [path.relative_to(SOURCE) for path in paths if "Inputs" not in path.parts]
    ranked = sorted(files, key=lambda path: (-len(words & set(path.stem.split("-"))), str(path)))
    return [str(path) for path in (ranked if everywhere else ranked[:MOST_TESTS])]


def neighbours(mutant: Mutant) -> list[str]:
    """Return the files of tests in the folder that is named as the one of a change."""
    folder = Path("test", *Path(mutant.path).parts[:-1])
    while not (SOURCE / folder).is_dir():
        folder = folder.parent
    return sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / folder).glob("test_*.py"))


def read_verdicts() -> list[Verdict]:
    """Return what `--run` has found, of each change the last verdict."""
    path = WORK / "verdicts.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    verdicts = [Verdict(**{**fields, "mutant": Mutant(**fields["mutant"])}) for fields in map(json.loads, lines)]
    return list({verdict.mutant: verdict for verdict in verdicts}.values())


def describe(verdict: Verdict) -> str:
    """Return a line about a change."""
    mutant, what = verdict.mutant, f"killed by {verdict.by}" if verdict.killed else "SURVIVED"
    return f"{mutant.path}:{mutant.line}: {mutant.kind}: {mutant.before!r} -> {mutant.after!r}: {what}"


def report(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the table of a page: by folder, then what survived."""
    yield "| folder | changes | killed by `make test` | by `make nightly` only | survived | reached by no test |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for folder in (*FOLDERS, "all"):
        own = [verdict for verdict in verdicts if folder in (verdict.mutant.folder, "all")]
        count = Counter(verdict.killed for verdict in own)
        unreached = sum(not verdict.killed and not verdict.reached_by for verdict in own)
        yield f"| {folder} | {len(own)} | {count['test']} | {count['nightly']} | {count['']} | {unreached} |"
    killed = sum(verdict.killed == "test" for verdict in verdicts)
    low, high = interval_of_rate(killed, len(verdicts))
    yield ""
    yield f"`make test` kills {killed} of {len(verdicts)}; 95 % interval of the rate: {low:.0%} to {high:.0%}."
    yield from ("", *(describe(verdict) for verdict in verdicts if verdict.killed != "test"))


def interval_of_rate(hits: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a rate."""
    if not count:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.975)
    rate, share = hits / count, z * z / count
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(rate * (1 - rate) / count + share / (4 * count))
    return middle - half, middle + half


if __name__ == "__main__":
    sys.exit(main())
