"""How many seeded single-point changes of the compiler the tests notice.

python -m benchmarks.mutation --map                    # run the tests once: which of them reach which change
python -m benchmarks.mutation --run 40                 # the first 40 of 300 changes; all of them without a number
python -m benchmarks.mutation --run 40 --again         # those that survived, with more tests
python -m benchmarks.mutation --report                 # tables by folder, and of survivors by class; --cases lists them

python -m benchmarks.mutation --folder targets/gpu --map --run --minutes 9    # one area, as far as 9 minutes go
python -m benchmarks.mutation --folder targets/gpu --retry test/targets/gpu   # what survived, with tests written since

With `--folder`, which may be repeated, changes are made in these folders only, and only tests of these folders are run:
those in the folder of `test` that is named as one of them, or as one above it, and those of `TESTED_BY`. A file may
stand for a folder. A package of `plugins` is tested by its own tests: `make test` collects those of some packages, and
`PLUGIN_TESTS` runs them where the package is installed.

The rate that counts is that of the changes which a test reaches: without PyTorch, oneDNN and devices, the others are
reached by none.

Changes are made in copies of the tracked files, in `.cache/mutation`. A change is killed if something that `make test`
runs fails with it, and not without it: a test that reaches the change, which fails or takes too long; a test of lit in
the folder that is named as that of the change; the type checker. Tests that do not reach a change cannot
notice it. Few of many tests are tried, and one folder of lit; with `--again`, changes that survived are tried with
more of them, and with all of lit, or that of the given folders. With `--nightly`, changes that survive are tried with
all cases of the same tests, which `make nightly` runs.
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
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from statistics import NormalDist
from threading import Lock
from types import MappingProxyType
from typing import Any

from mirlo.benchmarks.mutants import FOLDERS, Mutant, find_mutants, mutated, with_hits
from mirlo.runtime.processes import end_group, end_with_parent

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "mutation"
TESTED_BY = {
    "passes/bounds": ("passes/verify",),
    "passes/schedule": ("targets/llvm/schedule", "targets/gpu"),
    "targets/gpu": ("targets/nvvm", "targets/spirv"),
    "targets/llvm/schedule": ("targets/llvm/test_inner_loops.py",),
    "targets/nvvm/schedule": ("targets/nvvm",),
}
"""What tests a folder beside the tests of its name: tests of what uses it, or of what runs its code."""
PLUGINS = "plugins"
PLUGIN_TESTS = "test/plugin/test_plugins.py"
"""What installs each package of `plugins` and runs its own tests, whose names the record of hits has."""
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
MEMORY = 8 << 30
"""Bytes that one process of the tests may have: a change can let a loop allocate without an end."""
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that end this program, and what it has started."""
HITS = '''"""Record which tests reach a change."""

import os
import pathlib

FOLDER = pathlib.Path({folder!r})
SEEN = set()


def hit(*numbers):
    test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")
    for number in numbers:
        if (number, test, phase) not in SEEN:
            SEEN.add((number, test, phase))
            with open(FOLDER / f"{{os.getpid()}}.txt", "a", encoding="utf-8") as file:
                file.write(f"{{number}}\\t{{phase.rstrip(')')}}\\t{{test}}\\n")
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
    parser.add_argument(
        "--folder", action="append", default=[], help="make changes in this folder only, and run its tests only"
    )
    parser.add_argument("--map", action="store_true", help="find the tests that reach each change")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="FOLDER",
        help="with --map, run no tests of this folder: those of PyTorch take half of the time where it is installed",
    )
    parser.add_argument("--run", type=int, nargs="?", const=MUTANTS, help="try this many changes")
    parser.add_argument(
        "--nightly", action="store_true", help="try what survives with all cases of the tests that reach it, too"
    )
    parser.add_argument("--again", action="store_true", help="try what survived with more tests")
    parser.add_argument("--retry", nargs="+", help="try what survived with these tests, as they are now")
    parser.add_argument("--minutes", type=float, help="begin with no change after this many minutes")
    parser.add_argument("--report", action="store_true", help="print the tables")
    parser.add_argument("--cases", action="store_true", help="with --report, list each change that survived")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the tests, or changes at a time")
    options = parser.parse_args(arguments)
    for folder in options.folder:
        if not (ROOT / folder).exists():
            parser.error(
                f"--folder {folder}: expected a folder or a file of {ROOT}; the first ones: {', '.join(FOLDERS)}"
            )
    for number in SIGNALS:
        signal.signal(number, _end_with_groups)
    deadline = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    study = Study(tuple(sorted(options.folder)), options.seed)
    if options.map:
        study.copy_source()
    if options.map or options.run:
        mutants = choose(find_mutants(study.source, study.areas), MUTANTS, options.seed, study.areas)
    if options.map:
        make_map(study, mutants, options.jobs, options.without)
    if options.run:
        effort = Effort(options.nightly, options.again, study.lit if options.again else ())
        try_all(study, mutants[: options.run], study.read_map(), options.jobs, effort, deadline, study.read_seconds())
    if options.retry:
        study.copy_source("test")
        survived = [verdict.mutant for verdict in study.read_verdicts() if not verdict.killed]
        tests = {mutant.number: options.retry for mutant in survived}
        try_all(study, survived, tests, options.jobs, Effort(nightly=False, again=True), deadline)
    if options.report:
        print("\n".join(report(study.read_verdicts(), study.areas, options.cases)))
    return 0


@dataclass(frozen=True)
class Study:
    """Changes of some folders by a seed, and the files that store their results."""

    folders: tuple[str, ...]
    """Those in which changes are made; all without any."""
    seed: int

    @property
    def areas(self) -> tuple[str, ...]:
        """Return the folders that are mutated in turns, each a row of the report."""
        return self.folders or FOLDERS

    @property
    def work(self) -> Path:
        """Return the folder of the files."""
        return WORK / "+".join([folder.replace("/", ".") for folder in self.folders] or ["all"]) / str(self.seed)

    @property
    def source(self) -> Path:
        """Return the copy that `--map` made: the code may change before `--run`."""
        return self.work / "source"

    @property
    def tests(self) -> list[str]:
        """Return the tests to run: without folders, all."""
        return sorted({test for folder in self.folders for test in tests_of(folder)})

    @property
    def lit(self) -> list[str]:
        """Return the folders with tests of lit."""
        return [test for test in self.tests if not test.endswith(".py")] or ["test"]

    def copy_source(self, below: str = "") -> None:
        """Copy the tracked files, or those below a folder."""
        shutil.rmtree(self.source / below, ignore_errors=True)
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *filter(None, [below])]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.source / name, follow_symlinks=False)

    @cached_property
    def _map(self) -> dict[str, Any]:
        """Return what `--map` has recorded."""
        content: dict[str, Any] = json.loads((self.work / "map.json").read_text(encoding="utf-8"))
        return content

    def read_map(self) -> dict[int, list[str]]:
        """Return the tests that reach each change, those first that are tried first."""
        seconds: dict[str, float] = self._map["seconds"]
        return {int(number): in_turns(tests, seconds) for number, tests in self._map["reached"].items()}

    def read_seconds(self) -> dict[str, float]:
        """Return what each file of tests costs, in processor time."""
        costs: dict[str, float] = defaultdict(float)
        for test, seconds in self._map["seconds"].items():
            costs[test.partition("::")[0]] += seconds
        return dict(costs)

    @property
    def known_tests(self) -> Collection[str]:
        """Return the names of the tests that `--map` has run."""
        return self._map["seconds"].keys() if (self.work / "map.json").exists() else ()

    def read_verdicts(self) -> list[Verdict]:
        """Return what `--run` has found, of each change the last verdict."""
        path = self.work / "verdicts.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        verdicts = [Verdict(**{**fields, "mutant": Mutant(**fields["mutant"])}) for fields in map(json.loads, lines)]
        return list({verdict.mutant: verdict for verdict in verdicts}.values())


def tests_of(folder: str) -> list[str]:
    """Return the folder of tests that is named as a folder, or as one above it, and what else tests it.

    Of a folder that no tests are named as, these are those of `TESTED_BY` alone.
    """
    if Path(folder).parts[0] == PLUGINS:
        own = plugin_folder(folder)
        return [*([own] if (ROOT / own).is_dir() and own in collected_folders() else []), PLUGIN_TESTS]
    named, others = test_folder(folder, ROOT), others_of(folder)
    return others if named != f"test/{folder}" and folder in TESTED_BY else [named, *others]


@cache
def collected_folders() -> frozenset[str]:
    """Return the folders of tests that `make test` collects."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folders,) = re.findall(r"^testpaths = (\[.*\])$", text, re.MULTILINE)
    return frozenset(json.loads(folders))


def plugin_folder(path: str) -> str:
    """Return the folder with the tests of the package of `plugins` that a path is in."""
    return Path(*Path(path).parts[:2], "tests").as_posix()


def near_folders(path: str) -> tuple[str, ...]:
    """Return the folders of tests that are named as that of a file."""
    folder = Path(path).parent
    if folder.parts[0] == PLUGINS:
        return (Path(plugin_folder(path), *folder.parts[3:]).as_posix(),)
    return f"test/{folder.as_posix()}", f"{folder.as_posix()}/tests"


def others_of(path: str) -> list[str]:
    """Return what tests a folder or file beside the tests of its name."""
    above = [path, *(parent.as_posix() for parent in Path(path).parents)]
    return [f"test/{name}" for name in next((TESTED_BY[each] for each in above if each in TESTED_BY), ())]


@dataclass(frozen=True)
class Effort:
    """Which tests are tried with a change that the cheapest ones do not notice."""

    nightly: bool
    """All cases of the tests that reach it."""
    again: bool
    """More tests that reach it."""
    lit: Sequence[str] = ()
    """Folders whose files of lit are tried; without any, those in the folder of tests that is named as its own."""


def choose(mutants: Sequence[Mutant], count: int, seed: int, areas: Sequence[str]) -> list[Mutant]:
    """Return changes in a random order in which folders take turns, and kinds of changes within each."""
    source = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        area = area_of(mutant, areas)
        if area:
            groups[area, mutant.kind].append(mutant)
    for group in groups.values():
        source.shuffle(group)
    folders = {folder: [group for (own, _), group in sorted(groups.items()) if own == folder] for folder in areas}
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


def area_of(mutant: Mutant, areas: Sequence[str]) -> str:
    """Return the innermost of some folders, or files, that a change is in, or nothing."""
    return max((area for area in areas if f"{mutant.path}/".startswith(f"{area}/")), key=len, default="")


def make_map(study: Study, mutants: Sequence[Mutant], jobs: int, without: Sequence[str] = ()) -> None:
    """Run the tests, but for those of some folders, and record which tests reach the changes."""
    tree = Tree(WORK / "map", study.source)
    hits = study.work / "hits"
    shutil.rmtree(hits, ignore_errors=True)
    hits.mkdir(parents=True)
    (tree.root / "mutation_hits.py").write_text(HITS.format(folder=str(hits)), encoding="utf-8")
    for path in sorted({mutant.path for mutant in mutants}):
        own = [mutant for mutant in mutants if mutant.path == path]
        text = (study.source / path).read_text(encoding="utf-8")
        (tree.root / path).write_text(with_hits(text, own), encoding="utf-8")
    times = study.work / "times.jsonl"
    times.unlink(missing_ok=True)
    ignored = [f"--ignore={folder}" for folder in without]
    tree.run_tests(["-n", str(jobs), "--dist", "loadfile", f"--cpu-times={times}", *ignored, *study.tests], None)
    measured = [json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()] if times.exists() else []
    seconds = seconds_alone(measured)
    if not seconds:
        raise SystemExit(f"no test ran, so none reaches a change: {tree.output}")
    lines = (line for file in hits.iterdir() for line in file.read_text(encoding="utf-8").splitlines())
    paths = {mutant.number: mutant.path for mutant in mutants}
    # Tests that tests run have no costs: those of a plug-in are the case that runs them, others are left out.
    reaching = {
        number: sorted((tests | plugin_test(paths[number])) & seconds.keys())
        for number, tests in sorted(reached_in(lines, seconds).items())
    }
    (study.work / "map.json").write_text(json.dumps({"reached": reaching, "seconds": seconds}), encoding="utf-8")


def reached_in(lines: Iterable[str], tests: Iterable[str]) -> dict[int, set[str]]:
    """Return the tests that reach each change, from lines with its number, a phase of a test, and the test.

    What the setup of a test reaches may be a fixture that others of its file share: it is reached by all of these.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[test.partition("::")[0]].append(test)
    reached: dict[int, set[str]] = defaultdict(set)
    for line in lines:
        number, phase, test = line.split("\t", 2)
        reached[int(number)].add(test)
        if phase == "setup":
            reached[int(number)].update(files[test.partition("::")[0]])
    return reached


def plugin_test(path: str) -> set[str]:
    """Return the test that runs those of the package of `plugins` that a file is in, if it is in one."""
    folder, name, *_ = Path(path).parts
    return {f"{PLUGIN_TESTS}::test_its_own_tests_pass[{name}]"} if folder == PLUGINS else set()


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
    # What is no test's, such as imports, has no name.
    return {test: cpu + shared[test.partition("::")[0]] for test, cpu in own.items() if test}


def in_turns(tests: Sequence[str], seconds: dict[str, float]) -> list[str]:
    """Return tests by cost, taking turns among files."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: seconds.get(test, 1.0)):
        files[test.partition("::")[0]].append(test)
    ranked = [(turn, seconds.get(test, 1.0), test) for own in files.values() for turn, test in enumerate(own)]
    return [test for _, _, test in sorted(ranked)]


def files_of(path: str, costs: Mapping[str, float], is_global: bool) -> list[str]:
    """Return the files of tests in the folder of a file, up to a cost, those first that are named as it.

    What runs when a module is imported runs once in a process, with the first test that imports it: the tests that look
    at it are others. So does what a function computes whose results are cached; of other changes, only files are
    returned that are named as the changed one.
    """
    folders = near_folders(path)
    near = [file for file in costs if Path(file).parent.as_posix() in folders]
    near = [file for file in near if is_global or is_named_as(file, path)]
    files, total = list[str](), 0.0
    for file in nearest_first(path, sorted(near, key=lambda file: costs[file])):
        total += costs[file]
        if total > SECONDS / 4:
            break
        files.append(file)
    return files


def nearest_first(path: str, tests: Sequence[str]) -> list[str]:
    """Return tests in their order, those first whose file is named as a file, then those of its folder.

    What runs when a module is imported is reached by all tests, of which few look at it.
    """
    folders = near_folders(path)

    def distance(test: str) -> int:
        file = test.partition("::")[0]
        is_near = Path(file).parent.as_posix() in folders
        return 3 - 2 * is_named_as(file, path) - is_near

    return sorted(tests, key=distance)


def is_named_as(file: str, path: str) -> bool:
    """Return whether a file of tests has the words of a file in its name."""
    return set(Path(path).stem.split("_")) <= set(Path(file).stem.split("_"))


def installed_plugins() -> list[str]:
    """Return the packages of `plugins` that are installed from their folders, which are imported from copies instead.

    They are installed apart from Mirlo: what stands before them in the path is imported in their place.
    """
    packages = {path.parent for path in ROOT.glob(f"{PLUGINS}/*/mirlo_*/__init__.py")}
    return sorted(path.parent.relative_to(ROOT).as_posix() for path in packages if find_spec(path.name) is not None)


def failed_test(text: str, tests: Collection[str]) -> str:
    """Return the test of a line: its name, and often a dash and a message, both of which may have dashes."""
    ends = [*(match.start() for match in re.finditer(" - ", text)), len(text)]
    return next((text[:end] for end in reversed(ends) if text[:end] in tests), text[: ends[0]])


class Tree:
    """A copy of the tracked files in which a change is made and tests run."""

    def __init__(self, folder: Path, source: Path, tests: Collection[str] = ()) -> None:
        """Copy the files of `source`; `tests` are the names that tests have."""
        self.folder = folder
        self.source = source
        self._tests = tests
        self._states = file_states(source)
        self._passing: set[str] = set()
        """Tests that passed without a change: what fails with one is run without it once, not each time."""
        self.root = folder / "mirlo"
        """A folder of this name is the package `mirlo` for what runs in it."""
        self.output = folder / "output.txt"
        """What the last command has printed."""
        self._environment = {
            # Bytecode is kept outside of the copy, which is made again and again.
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": os.pathsep.join(map(str, [folder, *(self.root / each for each in installed_plugins())])),
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }  # fmt: skip
        self.restore()

    def restore(self) -> None:
        """Make the copy what the source is again: a file has changed, and tests may have left some."""
        present = file_states(self.root)
        kept = {name for name, state in present.items() if self._states.get(name) == state}
        for name in present.keys() - kept:
            (self.root / name).unlink()
        for name in self._states.keys() - kept:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.source / name, self.root / name, follow_symlinks=False)

    def change(self, mutant: Mutant) -> None:
        """Make a change in fresh files."""
        self.restore()
        text = (self.source / mutant.path).read_text(encoding="utf-8")
        (self.root / mutant.path).unlink()
        (self.root / mutant.path).write_text(mutated(text, mutant), encoding="utf-8")

    def judge(self, mutant: Mutant, tests: Sequence[str], effort: Effort, files: Sequence[str] = ()) -> Verdict:
        """Make a change and run what may notice it: the tests that reach it, and of files those that test its file."""
        most = MOST_TESTS_AGAIN if effort.again else MOST_TESTS
        killed, by = "test", self.failing(mutant, tests[:FIRST_TESTS]) or self.failing(mutant, files)
        for start in range(FIRST_TESTS, min(most, len(tests)), MOST_TESTS):
            by = by or self.failing(mutant, tests[start : min(start + MOST_TESTS, most)])
        by = by or self.failing_lit(mutant, effort.lit) or self.failing_types(mutant)
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
            if failure in ("", "timeout") or failure in self._passing:
                return failure
            self.restore()
            if failure == "import":
                return "" if self.run_tests(["--collect-only", *tests], SECONDS) else failure
            if not self.run_tests([*options, failure], SECONDS):
                self._passing.add(failure)
                return failure
            ignored.append(failure)
        return ""

    def failing_lit(self, mutant: Mutant, folders: Sequence[str]) -> str:
        """Return the first test of lit, of its folder or of some, that fails with a change and not without it."""
        files = lit_files(mutant, self.source, folders)
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
        return self._run(command, None) != 0

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
        if self._run([*command, limit, *files], None) == 0:
            return ""
        failed = re.findall(r"^FAIL: .*?:: (\S+)", self.output.read_text(encoding="utf-8"), re.MULTILINE)
        # What cannot be imported fails before a test does.
        return next((file for file in files if failed and file.endswith(failed[0])), "import")

    def run_tests(self, arguments: Sequence[str], seconds: int | None) -> str:
        """Run tests in the copy; return which failed first, `timeout`, `import`, or nothing."""
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *arguments]
        status = self._run(command, seconds)
        if status == -signal.SIGKILL:
            return "timeout"
        output = self.output.read_text(encoding="utf-8")
        failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if failed:
            return failed_test(failed[0].partition(" ")[2], self._tests)
        return "" if status in (0, 5) else "import"

    def _run(self, command: Sequence[str], seconds: int | None) -> int:
        """Run a command in the copy, which ends with all that it has started; return its status."""
        # A file, not a pipe: what the command leaves running would keep a pipe open.
        with (
            open(self.output, "wb") as output,
            subprocess.Popen(
                command, cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=partial(_limit, seconds),
            ) as running,
        ):  # fmt: skip
            GROUPS.add(running.pid)
            try:
                return running.wait(PATIENCE * seconds if seconds else None)
            except subprocess.TimeoutExpired:
                return -signal.SIGKILL
            finally:
                end_group(running.pid)
                GROUPS.discard(running.pid)


GROUPS: set[int] = set()
"""The groups of processes that are running now."""


def _limit(seconds: int | None) -> None:
    """Limit a new process, and have it killed when this process ends."""
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _end_with_groups(number: int, _: object) -> None:
    """Kill the running processes, then this process by the signal that it received."""
    for group in tuple(GROUPS):
        end_group(group)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def file_states(root: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of the last change of all files and links below a folder."""
    states: dict[str, tuple[int, int]] = {}
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for path in (os.path.join(folder, name) for name in [*names, *links]):
            status = os.lstat(path)
            states[os.path.relpath(path, root)] = (0 if os.path.islink(path) else status.st_size, status.st_mtime_ns)
    return states


def try_all(
    study: Study,
    mutants: Sequence[Mutant],
    tests: dict[int, list[str]],
    jobs: int,
    effort: Effort,
    deadline: float,
    costs: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Try changes until a time, as many at once as there are jobs; keep each verdict. `costs` are those of files."""
    known = {verdict.mutant: verdict for verdict in study.read_verdicts()}
    survived = {mutant for mutant, verdict in known.items() if not verdict.killed}
    waiting = iter([mutant for mutant in mutants if (mutant in survived if effort.again else mutant not in known)])
    lock = Lock()

    def work(number: int) -> None:
        tree = Tree(WORK / f"tree{number}", study.source, study.known_tests)
        while True:
            with lock:
                mutant = next(waiting, None) if time.monotonic() < deadline else None
            if mutant is None:
                return
            files = files_of(mutant.path, costs, mutant.is_global)
            verdict = tree.judge(mutant, nearest_first(mutant.path, tests.get(mutant.number, [])), effort, files)
            with lock, open(study.work / "verdicts.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
                print(describe(verdict), flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))


def lit_files(mutant: Mutant, source: Path, folders: Sequence[str]) -> list[str]:
    """Return files of lit in folders, or without any in those that test the one of a change; like ones first."""
    nearest = tests_of(Path(mutant.path).parent.as_posix())
    kinds = ("*.mlir", "*.test") if folders else ("*.mlir",)
    paths = {path for kind in kinds for folder in folders or nearest for path in (source / folder).rglob(kind)}
    files = [path.relative_to(source) for path in paths if "Inputs" not in path.parts]
    words = set(Path(mutant.path).stem.split("_"))
    ranked = sorted(files, key=lambda path: (-len(words & set(path.stem.split("-"))), str(path)))
    return [str(path) for path in (ranked if folders else ranked[:MOST_TESTS])]


def test_folder(path: str, source: Path) -> str:
    """Return the folder of tests that is named as a folder or file, or as the innermost one above it that has some."""
    above = [path, *(parent.as_posix() for parent in Path(path).parents)]
    if Path(path).parts[0] == PLUGINS:
        return Path(PLUGIN_TESTS).parent.as_posix()
    return next(f"test/{name}" for name in above if (source / "test" / name).is_dir())


def describe(verdict: Verdict) -> str:
    """Return a line about a change."""
    mutant, what = verdict.mutant, f"killed by {verdict.by}" if verdict.killed else "SURVIVED"
    return f"{mutant.path}:{mutant.line}: {mutant.kind}: {mutant.before!r} -> {mutant.after!r}: {what}"


def report(verdicts: Sequence[Verdict], areas: Sequence[str], has_cases: bool = False) -> Iterator[str]:
    """Yield the tables of a page: by folder, and what survived by class; then each change that did, if asked for."""
    yield "| folder | changes | reached | killed by `make test` | by `make nightly` only | survived | of the reached |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for folder in (*areas, "all"):
        own = [verdict for verdict in verdicts if folder in (area_of(verdict.mutant, areas), "all")]
        count = Counter(verdict.killed for verdict in own)
        reached = [verdict for verdict in own if is_reached(verdict)]
        rate = f"{sum(verdict.killed == 'test' for verdict in reached) / len(reached):.0%}" if reached else ""
        counts = (len(own), len(reached), count["test"], count["nightly"], count[""])
        yield f"| {folder} | {' | '.join(map(str, counts))} | {rate} |"
    for name, counted in (("that a test reaches", [*filter(is_reached, verdicts)]), ("of all", verdicts)):
        killed = sum(verdict.killed == "test" for verdict in counted)
        low, high = interval_of_rate(killed, len(counted))
        yield ""
        yield (
            f"`make test` kills {killed} of {len(counted)} changes {name}; 95 % interval of the rate: {low:.0%} to "
            f"{high:.0%}."
        )
    yield ""
    yield from survivors(verdicts, areas)
    if has_cases:
        yield from ("", *(describe(verdict) for verdict in verdicts if verdict.killed != "test"))


def is_reached(verdict: Verdict) -> bool:
    """Return whether something that was run can notice a change: a test that reaches it, or what has noticed it."""
    return bool(verdict.reached_by or verdict.killed)


def survivors(verdicts: Sequence[Verdict], areas: Sequence[str]) -> Iterator[str]:
    """Yield a table of the changes that tests reach and `make test` does not kill, by kind and folder."""
    classes: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.killed != "test" and is_reached(verdict):
            classes[verdict.mutant.kind, area_of(verdict.mutant, areas)].append(verdict)
    yield "| kind of change | folder | survived | of | for example |"
    yield "| --- | --- | ---: | ---: | --- |"
    for (kind, folder), own in sorted(classes.items(), key=lambda row: (-len(row[1]), row[0])):
        alike = [each for each in verdicts if (each.mutant.kind, area_of(each.mutant, areas)) == (kind, folder)]
        example = own[0].mutant
        shown = f"`{example.path}:{example.line}`: `{example.before}` as `{example.after}`".replace("|", "\\|")
        yield f"| {kind} | {folder} | {len(own)} | {sum(map(is_reached, alike))} | {shown} |"


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
