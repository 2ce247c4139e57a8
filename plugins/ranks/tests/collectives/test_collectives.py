"""Collectives over shared memory: results as in numpy, ranks that end, and mismatched calls."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mirlo_ranks.collectives.shared_memory import load
from mirlo_ranks.testing import run_ranks

import mirlo
from mirlo.extend.passes import OPS
from mirlo.extend.ranks import RankError, rank_place
from mirlo.extend.runtime import Executable, ExternalArtifact, LoadContext

TARGET = "collectives,llvm"


def _module(ranks: int, dtype: str = "f32") -> str:
    """Return a module of all collectives, with arithmetic between them, on rows of any number."""
    x, dims = f'tensor<?x8x{dtype}, #relax.dims<["rows", 8]>>', f"ranks = {ranks} : i64"
    gathered = f'tensor<?x{8 * ranks}x{dtype}, #relax.dims<["rows", {8 * ranks}]>>'
    part = f'tensor<?x{8 // ranks}x{dtype}, #relax.dims<["rows", {8 // ranks}]>>'
    moved = f'tensor<?x{8 // ranks}x{dtype}, #relax.dims<["{ranks}*rows", {8 // ranks}]>>'
    return f"""
func.func @main(%x: {x} {{relax.name = "x"}}) -> ({x}, {gathered}, {part}, {moved}) {{
  %0 = "relax.all_reduce"(%x) {{{dims}}} : ({x}) -> {x}
  %1 = "relax.add"(%0, %x) : ({x}, {x}) -> {x}
  %2 = "relax.all_gather"(%1) {{axis = 1 : i64, {dims}}} : ({x}) -> {gathered}
  %3 = "relax.reduce_scatter"(%x) {{axis = 1 : i64, {dims}}} : ({x}) -> {part}
  %4 = "relax.all_to_all"(%x) {{split_axis = 1 : i64, concat_axis = 0 : i64, {dims}}} : ({x}) -> {moved}
  return %0, %2, %3, %4 : {x}, {gathered}, {part}, {moved}
}}
"""


def _compiled(tmp_path: Any, ranks: int, dtype: str = "f32") -> Executable:
    path = tmp_path / "model.mlir"
    path.write_text(_module(ranks, dtype))
    executable = mirlo.compile(path, TARGET)
    assert isinstance(executable, Executable)
    return executable


def _operands(ranks: int, rows: int, dtype: Any = np.float32) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    return [random.integers(-50, 50, (rows, 8)).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_collectives(ranks: int, tmp_path: Any) -> None:
    """Also with memory that has to grow, and with empty tensors."""
    executable, sizes = _compiled(tmp_path, ranks), (3, 0, 5000, 1)

    def call(rank: int) -> list[list[np.ndarray]]:
        return [list(executable.run({"x": _operands(ranks, rows)[rank]}).values()) for rows in sizes]

    results = run_ranks(call, ranks)
    for at, rows in enumerate(sizes):
        xs = _operands(ranks, rows)
        sums = OPS["all_reduce"].meaning_of_ranks(xs, ranks=ranks)
        expected = [
            sums,
            OPS["all_gather"].meaning_of_ranks([s + x for s, x in zip(sums, xs, strict=True)], ranks=ranks, axis=1),
            OPS["reduce_scatter"].meaning_of_ranks(xs, ranks=ranks, axis=1),
            OPS["all_to_all"].meaning_of_ranks(xs, ranks=ranks, split_axis=1, concat_axis=0),
        ]
        for rank, of_rank in enumerate(results):
            for result, each in zip(of_rank[at], expected, strict=True):
                assert np.array_equal(result, each[rank])


@pytest.mark.sample(0)
def test_low_precision_is_rounded_once(tmp_path: Any) -> None:
    import ml_dtypes

    ranks = 4
    executable, xs = _compiled(tmp_path, ranks, "bf16"), _operands(ranks, 3, ml_dtypes.bfloat16)
    results = run_ranks(lambda rank: np.float32(executable.run({"x": xs[rank]})["output_0"]), ranks)
    expected = np.float32(np.sum(np.float64(np.stack(xs)), 0).astype(ml_dtypes.bfloat16))
    assert all(np.array_equal(result, expected) for result in results)


def _ending(executable: Executable, ending: int, end: Callable[[], object]) -> Callable[[int], Any]:
    def call(rank: int) -> tuple[float, str]:
        x = _operands(2, 3)[rank]
        executable.run({"x": x})
        if rank == ending:
            end()
            return 0.0, ""
        start = time.monotonic()
        with pytest.raises(mirlo.MirloError) as error:
            executable.run({"x": x})
        with pytest.raises(mirlo.MirloError):
            executable.run({"x": x})
        return time.monotonic() - start, str(error.value)

    return call


def test_the_end_of_a_rank_ends_the_others(tmp_path: Any) -> None:
    executable = _compiled(tmp_path, 2)
    died, (seconds, text) = run_ranks(_ending(executable, 0, lambda: os.kill(os.getpid(), signal.SIGKILL)), 2)
    assert died is None and seconds < 10
    assert "rank 0 has ended, and rank 1 waits for it in exchange 0" in text


def test_a_rank_that_does_not_come_is_named(tmp_path: Any) -> None:
    executable = _compiled(tmp_path, 2)
    call = _ending(executable, 0, lambda: time.sleep(2))
    _, (seconds, text) = run_ranks(call, 2, MIRLO_RANKS_TIMEOUT="0.5")
    assert 0.4 < seconds < 2 and "rank 1 waited 0.5 s for rank 0 (MIRLO_RANKS_TIMEOUT)" in text

    def late(rank: int) -> str:
        if rank == 0:
            with pytest.raises(mirlo.MirloError) as error:
                executable.run({"x": _operands(2, 3)[rank]})
            return str(error.value)
        return ""

    assert "rank 0 waited 0.5 s for rank 1 to start" in run_ranks(late, 2, MIRLO_RANKS_TIMEOUT="0.5")[0]


def test_a_rank_that_is_stopped_is_named(tmp_path: Any) -> None:
    executable = _compiled(tmp_path, 2)
    call = _ending(executable, 0, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    seconds, text = run_ranks(call, 2, without=0, MIRLO_RANKS_HEARTBEAT="1")[1]
    assert 0.9 < seconds < 8
    assert "rank 0 has shown no sign of life for 1 s (MIRLO_RANKS_HEARTBEAT), as its process is stopped" in text
    assert "rank 1 waits for it in exchange 0" in text


def test_a_slow_rank_that_holds_the_lock_of_python_is_waited_for(tmp_path: Any) -> None:
    executable, xs = _compiled(tmp_path, 2), _operands(2, 3)

    def call(rank: int) -> np.ndarray:
        executable.run({"x": xs[rank]})
        if rank == 0:
            ctypes.PyDLL(None).usleep(2_500_000)
        return executable.run({"x": xs[rank]})["output_0"]

    for result in run_ranks(call, 2, MIRLO_RANKS_HEARTBEAT="1"):
        assert np.array_equal(result, OPS["all_reduce"].meaning_of_ranks(xs, ranks=2)[0])


@pytest.mark.parametrize("value", ["0.5", "soon"])
def test_a_heartbeat_that_cannot_be(value: str, tmp_path: Any) -> None:
    executable = _compiled(tmp_path, 2)
    results = run_ranks(lambda rank: executable.run({"x": _operands(2, 3)[rank]}), 2, MIRLO_RANKS_HEARTBEAT=value)
    assert all("MIRLO_RANKS_HEARTBEAT: expected a number of seconds from 1" in str(each) for each in results)


def test_operands_of_other_sizes(tmp_path: Any) -> None:
    executable = _compiled(tmp_path, 2)
    results = run_ranks(lambda rank: executable.run({"x": _operands(2, 3 + rank)[rank]}), 2)
    assert any("all ranks need inputs of the same shapes" in str(each) for each in results)
    assert all(isinstance(each, mirlo.MirloError) for each in results)


def test_ranks_of_other_models_do_not_meet(tmp_path: Any) -> None:
    executables, dtypes = [_compiled(tmp_path, 2), _compiled(tmp_path, 2, "f64")], (np.float32, np.float64)
    results = run_ranks(lambda rank: executables[rank].run({"x": _operands(2, 3, dtypes[rank])[rank]}), 2)
    assert any("runs another model, or another version" in str(result) for result in results)
    assert all(isinstance(result, mirlo.MirloError) for result in results)


def test_a_model_for_ranks_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = _compiled(tmp_path, 2)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        mirlo.MirloError, match="the model is for 2 ranks: start one process for each, with 'mpirun -n 2'"
    ):
        executable.run({"x": _operands(2, 3)[0]})
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(mirlo.MirloError, match="the model is for 2 ranks, but 3 were started"):
        executable.run({"x": _operands(2, 3)[0]})


def test_without_a_transport(tmp_path: Any) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(_module(2))
    with pytest.raises(mirlo.MirloError, match="compile for 'collectives,llvm'"):
        mirlo.compile(path)


def test_a_folder_of_others_is_refused(tmp_path: Any) -> None:
    executable = _compiled(tmp_path, 2)
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    results = run_ranks(lambda rank: executable.run({"x": _operands(2, 3)[rank]}), 2, MIRLO_RANKS_FOLDER=str(folder))
    assert all("can be written by others" in str(each) for each in results)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4, 4)),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, (1, 4, 2)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "4"}, (0, 2, 2)),
    ],
)
def test_places(environment: dict[str, str], expected: tuple[int, int, int] | None) -> None:
    place = rank_place(environment)
    assert (None if place is None else (place.rank, place.ranks, place.local_ranks)) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK: expected a number from 0 to 3, found '4'"),
        ({"RANK": "0", "WORLD_SIZE": "many"}, "WORLD_SIZE: expected a number from 1 to 1024, found 'many'"),
    ],
)
def test_wrong_places(environment: dict[str, str], message: str) -> None:
    with pytest.raises(RankError, match=message):
        rank_place(environment)


@pytest.mark.parametrize(
    "programs",
    [
        None,
        {},
        {"f": {"inputs": ["x"], "outputs": ["y"]}},
        {"f": {"inputs": ["x"], "outputs": ["y"], "exchanges": [["all_reduce", "z", "y", 2, [], "f32"]]}},
        {"f": {"inputs": ["x"], "outputs": ["z"], "exchanges": [["all_reduce", "x", "y", 2, [], "f32"]]}},
        {"f": {"inputs": ["x"], "outputs": ["y"], "exchanges": [["all_gather", "x", "y", 2, [], "f32"]]}},
        {"f": {"inputs": ["x"], "outputs": ["y"], "exchanges": [["all_reduce", "x", "y", -2, [], "f32"]]}},
        {"f": {"inputs": ["x"], "outputs": ["x"], "exchanges": []}},
    ],
)
def test_damaged_programs(programs: object) -> None:
    artifact = ExternalArtifact("shared-memory", ("f",), metadata={"programs": programs})
    with pytest.raises(mirlo.MirloError, match="compile"):
        load(artifact, LoadContext({}))
