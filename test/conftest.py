"""Tests import the checkout that they are in, whatever is installed, and the modules that they share by plain name."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from zlib import crc32

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

if ROOT.name == "mirlo":
    sys.path.insert(0, str(ROOT.parent))

SECONDS_OF_CASES = 0.2
"""Recorded seconds for which cases of a function are run in `make test`, at least one; `make nightly` runs all."""

PACKAGE_TESTS = [ROOT / "plugins" / name / "tests" for name in ("llm", "stablehlo", "torch")]
"""Tests of packages that `make test` runs in parallel with those of Mirlo."""

TOGETHER = ("test/architecture",)
"""Folders whose tests run in one process, for what they share: the parsed package."""
OBJECTS = 50_000
"""New objects before Python looks for garbage in cycles."""
RARE = 12
"""`--sample N` runs one in this many of the cases that `make test` never runs."""
SHARED = {path.parent for path in TESTS.rglob("*.py") if not path.name.startswith(("test_", "conftest", "lit."))}
sys.path += sorted(str(folder) for folder in SHARED if folder.name != "Inputs")

import item_hooks  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="all of what tests take a sample of, as `make nightly` does")
    parser.addoption(
        "--sample", type=int, default=0, metavar="N",
        help="other samples, as large as those of `make test`, and a part of what no sample has",
    )  # fmt: skip
    parser.addoption("--shard", metavar="I/N", help="the tests of one of N shards of `make nightly`")
    parser.addoption("--cpu-times", help="a file to which the processor time of each test is appended")
    parser.addoption("--host-cpu", help="the processor that Mirlo sees instead of this one: x86-64-v3, for example")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sample(every): run one case in N, none for 0, all for 1 whatever they cost; with --whole, all"
    )
    config.addinivalue_line("filterwarnings", "error::mirlo.passes.rules.RuleWarning")
    config.addinivalue_line("markers", "processors(name, ...): those of the argument `processor`; none for all")
    config.pluginmanager.register(item_hooks)
    # xdist hands out files in the order of this file's hook, not by their numbers of tests.
    config.option.loadscopereorder = False
    _collect_from_either_end(config)
    times = config.getoption("--cpu-times")
    if times and not (config.getoption("numprocesses", None) and not hasattr(config, "workerinput")):
        from cpu_times import CpuTimes

        config.pluginmanager.register(CpuTimes(Path(times)))
    if config.getoption("--whole"):
        from verified_kernels import Share

        Share.every = 1
    cpu = config.getoption("--host-cpu")
    if cpu:
        from masked_host import mask

        try:
            mask(cpu, ROOT / ".cache" / "tests" / f"host-{cpu}")
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None


def _collect_from_either_end(config: pytest.Config) -> None:
    """Make every second process collect the folders in reverse: each then rewrites the assertions of half of the files.

    A process finds what the other has written by then; in a new clone that is half of the time of the collection.
    """
    worker = getattr(config, "workerinput", {}).get("workerid", "gw0")
    if int(worker.removeprefix("gw")) % 2 and [Path(each).resolve() for each in config.args] == [TESTS, *PACKAGE_TESTS]:
        folders = [*PACKAGE_TESTS[1:], *sorted(PACKAGE_TESTS[0].iterdir(), reverse=True)]
        folders += sorted(TESTS.iterdir(), reverse=True)
        config.args = [str(path) for path in folders if any(path.rglob("test_*.py"))]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through the tests again and again while they are collected."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Take the samples of tests, and where several processes run tests, begin with the files that take longest."""
    if not config.getoption("--whole"):
        _keep_hypothesis_from_parsing()
    yield
    _deselect_what_is_not_sampled(config, items)
    if config.getoption("--shard"):
        _keep_shard(config, items)
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[float, str]:
    """Return what orders the files of tests: their costs, then their names."""
    file = item.nodeid.partition("::")[0]
    return -item_hooks.costs().get(file, 0.0), file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Distribute tests by file, but keep the folders in `TOGETHER` whole."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            folder = file.rpartition("/")[0]
            return folder if folder in TOGETHER else file

    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


def _keep_hypothesis_from_parsing() -> None:
    """Keep hypothesis from trying constants of the tested modules: it parses all of them for these, for seconds."""
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = providers.Constants  # type: ignore[union-attr]


def _deselect_what_is_not_sampled(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that are not in the sample of a test: the same ones in every run with the same `--sample`.

    A test is sampled that is marked so, or whose cases are recorded to take long. A sample has every value of each
    parameter, if it is large enough; of `sample(0)` nothing is run, but with `--sample` one case in `RARE`.
    """
    seed = config.getoption("--sample")
    if config.getoption("--whole") or any("[" in argument for argument in config.args):
        return
    cases: dict[tuple[str, int | None], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("sample")
        if marker is not None:
            every = marker.args[0] if marker.args else None
            cases.setdefault((item.nodeid.partition("[")[0], every), []).append(item)
    left: set[pytest.Item] = set()
    for (function, every), marked in cases.items():
        count = 0 if every == 0 else -(-len(marked) // (every or 1))
        each = item_hooks.costs().get(function)
        if each is not None and len(marked) > 1 and every != 1:
            count = min(count, max(1, int(SECONDS_OF_CASES / each)))
        chosen = _representatives(marked, count, seed)
        if seed and every == 0:
            chosen = [item for item in marked if (crc32(item.nodeid.encode()) + seed) % RARE == 0]
        left.update(set(marked) - set(chosen))
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def _keep_shard(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other shards."""
    from mirlo.benchmarks.nightly import parse_shard, shard_of

    kept = shard_of([item.nodeid for item in items], *parse_shard(config.getoption("--shard")))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def _representatives(cases: list[pytest.Item], count: int, seed: int = 0) -> list[pytest.Item]:
    """Return this number of cases in checksum order, first those with values that no other case has."""
    prefix = f"{seed} " if seed else ""
    waiting = sorted(cases, key=lambda item: crc32(f"{prefix}{item.nodeid}".encode()))
    values = {item: set(_values(item)) for item in cases}
    chosen: list[pytest.Item] = []
    seen: set[tuple[str, object]] = set()
    while len(chosen) < count:
        best = max(waiting, key=lambda item: len(values[item] - seen))
        if values[best] <= seen:  # all values are there: once more
            seen.clear()
            best = max(waiting, key=lambda item: len(values[item]))
        seen |= values[best]
        waiting.remove(best)
        chosen.append(best)
    return chosen


def _values(item: pytest.Item) -> Iterator[tuple[str, object]]:
    """Yield the value of each parameter, or which object it is where it is no simple one.

    Positions (`callspec.indices`) are no help: pytest numbers the cases of a function in them, not the values.
    """
    call = getattr(item, "callspec", None)
    for name, value in call.params.items() if call is not None else ():
        yield name, value if isinstance(value, (str, int)) else id(value)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through what lasts: some ten thousand tests and all modules.

    Of what tests make, little is in cycles: looking for these after every 700 new objects takes 5 % of their time.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])


def pytest_sessionfinish() -> None:
    """Keep pytest's five collections of garbage at the end from going through all that there is."""
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked `processors` for each of them, or for those that it names."""
    marker = metafunc.definition.get_closest_marker("processors")
    if marker is not None:
        from presets import PROCESSORS

        names = marker.args or tuple(PROCESSORS)
        metafunc.parametrize("processor", [PROCESSORS[name] for name in names], ids=names)


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    """Return whether a test takes all of its cases, not a sample."""
    return bool(request.config.getoption("--whole"))


# What tests compile is kept apart from what the user compiles; the keys hold the sources, so nothing in it is stale.
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".cache" / "tests")

# Commands that tests start find the bytecode of those before: without it, each takes most of a second longer to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
