"""`mirlo fuzz guards`: what kernels do wrong is found, and a few of the seeds that are run by the thousand nightly."""

from __future__ import annotations

import ctypes
import faulthandler
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_compiler import needs_c_compiler
from commands import mirlo
from onnx_models import F32, make_model, node

import mirlo as package
from mirlo.runtime.executable import Executable
from mirlo.runtime.processes import ForkResult, can_fork, run_forked
from mirlo.runtime.sizes import Allocations
from mirlo.tools.fuzz import guards
from mirlo.tools.fuzz.guards import guarded_case, guarded_places, judge_call

pytestmark = pytest.mark.skipif(not can_fork(), reason="cases run in forks, and pages are protected as POSIX does")
SIZE = 5
FEEDS = {"x": np.arange(SIZE, dtype=np.float32)}


@pytest.fixture(scope="module")
def compiled() -> Executable:
    w = np.arange(SIZE * 7, dtype=np.float32).reshape(SIZE, 7)
    nodes = [node("MatMul", "x w", "a"), node("Softmax", "a", "b"), node("MatMul", "b v", "y")]
    model = make_model(nodes, {"x": (F32, (SIZE,))}, ["y"], {"w": w, "v": w.T.copy()})
    made = package.compile(model, cache=False, jobs=1)
    assert isinstance(made, Executable) and made.artifact.arena_bytes and made.artifact.params
    return made


Entry = Callable[[list[int], list[int], int], object]
"""What takes the addresses of tensors and weights, and that of the arena."""


def _judged(compiled: Executable, entry: Entry) -> str | None:
    """Judge a call of a model whose kernels are a function."""
    places = guarded_places(compiled)
    for _, guarded in places:

        def call(tensors: object, params: object, arena: int, _: object) -> None:
            if tensors is not None:
                entry(list(tensors), list(params), arena)  # type: ignore[call-overload]

        guarded._code = replace(guarded._code, entry=call)
    return judge_call(places, FEEDS)


def _judged_in_fork(compiled: Executable, entry: Entry) -> ForkResult:
    """Judge in a process that may crash, of which pytest does not report it: it is expected."""

    def work() -> bytes:
        faulthandler.disable()
        return str(_judged(compiled, entry)).encode()

    return run_forked(work)


def _floats(address: int, count: int = SIZE) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def _copy(tensors: list[int], params: list[int], arena: int) -> None:
    _floats(tensors[1])[:] = _floats(tensors[0])


def test_what_a_kernel_may_do(compiled: Executable) -> None:
    assert judge_call(guarded_places(compiled), FEEDS) is None
    assert _judged(compiled, _copy) is None


CRASHES: dict[str, Entry] = {
    "reads behind an input": lambda tensors, params, arena: _floats(tensors[0], SIZE + 1)[SIZE] + 1,
    "reads before an input": lambda tensors, params, arena: _floats(tensors[0] - 4)[0] + 1,
    "writes an input": lambda tensors, params, arena: _floats(tensors[0]).fill(1),
    "writes behind an output": lambda tensors, params, arena: _floats(tensors[1], SIZE + 1).fill(1),
    "writes before an output": lambda tensors, params, arena: _floats(tensors[1] - 4).fill(1),
    "writes a weight": lambda tensors, params, arena: _floats(params[0]).fill(1),
    "reads before a weight": lambda tensors, params, arena: _floats(params[0] - 4)[0] + 1,
    "reads before the arena": lambda tensors, params, arena: _floats(arena - 4)[0] + 1,
    "reads behind the arena": lambda tensors, params, arena: _floats(arena + 4096)[0] + 1,
}


@pytest.mark.parametrize("kind", CRASHES)
def test_accesses_outside_of_memory_end_the_process(kind: str, compiled: Executable) -> None:
    def entry(tensors: list[int], params: list[int], arena: int) -> None:
        _copy(tensors, params, arena)
        CRASHES[kind](tensors, params, arena)

    ended = _judged_in_fork(compiled, entry)
    was_seen = ended.content.endswith(b"were overwritten")  # between memory and its page
    assert ended.code in (-11, -10) or was_seen, f"{ended.code}: {ended.content.decode()}"


def test_dependence_on_memory_is_found(compiled: Executable) -> None:
    def read_output(tensors: list[int], params: list[int], arena: int) -> None:
        _floats(tensors[1], SIZE - 1)[:] = 0

    def read_arena(tensors: list[int], params: list[int], arena: int) -> None:
        _floats(tensors[1])[:] = _floats(arena)

    for entry in (read_output, read_arena):
        assert _judged(compiled, entry) == "'y' depends on what was in memory before the call"


def test_bytes_beside_the_arena_are_watched(compiled: Executable) -> None:
    nbytes = compiled.artifact.arena_bytes

    def write(tensors: list[int], params: list[int], arena: int) -> None:
        _copy(tensors, params, arena)
        _floats(arena + nbytes, 1)[:] = 1  # at the start of its pages, there is room after it

    found = _judged_in_fork(compiled, write)
    assert found.code == -11 or found.content == b"4 bytes beside the arena were overwritten"


def test_what_an_allocation_raises_is_raised_by_the_call() -> None:
    """Compiled code gets no address then: what ctypes returned would be any."""

    def interrupted(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        raise KeyboardInterrupt

    late = Allocations(empty=interrupted)
    assert late.function(None, 0, 16) is None
    with pytest.raises(KeyboardInterrupt):
        late.require()


def test_calls_are_those_that_are_written(tmp_path: Path) -> None:
    case = guarded_case(0)
    guards.write(0, tmp_path)
    for index, model in enumerate(case.models):
        names = [value.name for value in model.graph.input]
        for number, feeds in enumerate(case.calls(names)):
            for name, array in feeds.items():
                found = np.load(tmp_path / f"model{index}-call{number}" / f"{name}.npy")
                assert found.tobytes() == array.tobytes() and found.shape == array.shape
        assert len((tmp_path / f"model{index}.txt").read_text().splitlines()) == guards.CALLS + 1


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", ["llvm", pytest.param("c", marks=needs_c_compiler)])
def test_random_graphs_keep_to_their_memory(target: str, whole: bool) -> None:
    count = 100 if whole else 15
    report = json.loads(mirlo("fuzz", "guards", "--target", target, "--count", count, "--json").stdout)
    assert report["found"] == [] and report["states"].get("safe", 0) >= 0.9 * count
