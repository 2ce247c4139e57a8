"""Tuning: choices are told to kernels, what is measured is kept, what is slower or wrong is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import mirlo, output_of
from onnx_models import F32, make_model, node

import mirlo as package
from mirlo.runtime.errors import MirloError
from mirlo.tools.tune.database import Database, DatabaseError, Entry
from mirlo.tools.tune.measure import Timing, time_choices
from mirlo.tools.tune.search import tune
from mirlo.tools.tune.tasks import tasks_of

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((64, 48), dtype=np.float32)


def _model():
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "y"), node("Exp", "y", "z")]
    return make_model(nodes, {"x": (F32, [32, 64])}, ["z"], {"w": WEIGHT})


class Pretended:
    """Says that one choice takes a given part of the time."""

    def __init__(self, ratio: float, again: float | None = None) -> None:
        self.ratio, self.again, self.asked = ratio, again, 0

    def ratios(self, task, choices, target, threads):
        if len(choices) == 1 and self.again is not None:
            return Timing(100.0, (self.again,))
        self.asked += len(choices)
        return Timing(100.0, tuple(self.ratio if choice == task.choices[1] else 1.1 for choice in choices))


def test_kernels_with_choices_are_tasks():
    tasks, kernels = tasks_of(_model(), "llvm", 1)
    assert kernels == 1 and [task.function for task in tasks] == ["fused_matmul_relu_exp"]
    assert tasks[0].choices and all(set(choice) <= {"tile_rows", "tile_vectors", "pack"} for choice in tasks[0].choices)


def _row():
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "y")]
    weight = RNG.standard_normal((700, 300), dtype=np.float32)
    return make_model(nodes, {"x": (F32, [1, 700])}, ["y"], {"w": weight})


def _attention():
    nodes = [node("Attention", "q k v", "y", q_num_heads=2, kv_num_heads=2, is_causal=1)]
    return make_model(nodes, {name: (F32, [1, 300, 32]) for name in "qkv"}, ["y"], opset=23)


def _softmax():
    return make_model([node("Softmax", "x", "y", axis=1)], {"x": (F32, [37, 345])}, ["y"])


def _pool():
    nodes = [node("AveragePool", "x", "y", kernel_shape=[3, 3])]
    return make_model(nodes, {"x": (F32, [1, 40, 19, 19])}, ["y"])


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (_model, {"tile_rows", "tile_vectors", "pack"}), (_row, {"lead_bytes"}), (_attention, {"block_rows"}),
        (_softmax, {"unroll"}), (_pool, {"unroll"}),
    ],
)  # fmt: skip
def test_all_choices_compute_the_same(model, names):
    tasks, _ = tasks_of(model(), "llvm", 1)
    task = next(task for task in tasks if names & {name for choice in task.choices for name in choice})
    timing = time_choices(task, task.choices[:6], "llvm", 1)
    assert timing.microseconds > 0 and all(ratio is not None for ratio in timing.ratios)


def test_what_wins_twice_is_kept_and_used(tmp_path: Path):
    database = Database(tmp_path / "tuning.json")
    report = tune(_model(), database, measurer=Pretended(0.5), seconds=30)
    (task,), _ = tasks_of(_model(), "llvm", 1)
    assert [result.values for result in report.results] == [task.choices[1]]
    assert (report.before, report.after) == (100.0, 50.0)
    kept = Database(tmp_path / "tuning.json")
    assert kept.find(task.key) == task.choices[1]
    stages = tmp_path / "ir"
    x = RNG.standard_normal((32, 64), dtype=np.float32)
    f = package.compile(_model(), tune=kept, save_ir=stages, cache=False)
    np.testing.assert_allclose(f(x), np.exp(np.maximum(x @ WEIGHT, 0)), rtol=2e-4)
    told = next(stages.glob("*apply-tuning.mlir")).read_text()
    assert "tir.tuned = {" in told
    plain = package.compile(_model(), tune=False, save_ir=tmp_path / "plain", cache=False)
    np.testing.assert_allclose(plain(x), f(x), rtol=1e-5)
    assert "tir.tuned" not in next((tmp_path / "plain").glob("*apply-tuning.mlir")).read_text()


@pytest.mark.parametrize("measurer", [Pretended(0.99), Pretended(0.5, again=1.02)], ids=["too little", "once only"])
def test_what_does_not_win_twice_is_not_kept(tmp_path: Path, measurer):
    report = tune(_model(), Database(tmp_path / "t.json"), measurer=measurer, seconds=30)
    assert [result.values for result in report.results] == [{}] and report.after == report.before


def test_what_is_known_is_not_measured_again(tmp_path: Path):
    database = Database(tmp_path / "t.json")
    tune(_model(), database, measurer=Pretended(0.5), seconds=30)
    again = Pretended(0.1)
    report = tune(_model(), Database(tmp_path / "t.json"), measurer=again, seconds=30)
    assert again.asked == 0 and [result.known for result in report.results] == [True]


def test_processes_add_to_one_file(tmp_path: Path):
    first, second = Database(tmp_path / "t.json"), Database(tmp_path / "t.json")
    entry = Entry({"pack": 1}, 0.5, 3.0, "f", 4)
    first.add("a", entry)
    second.add("b", entry)
    assert set(Database(tmp_path / "t.json").entries) == {"a", "b"}


@pytest.mark.parametrize("text", ["{", '{"version": 1}', '{"version": 7, "entries": {}}', "[]"])
def test_a_damaged_database_is_an_error(tmp_path: Path, text: str):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DatabaseError, match="t.json"):
        Database(tmp_path / "t.json")


def test_targets_without_choices_say_so():
    with pytest.raises(MirloError, match="target 'c' has nothing to tune"):
        tasks_of(_model(), "c", 1)


def test_the_command(tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(_model().SerializeToString())
    flags = ("--seconds", 20, "--database", tmp_path / "t.json", "--json")
    report = json.loads(output_of(mirlo("tune", tmp_path / "m.onnx", *flags)))
    assert report["kernels"] == 1 and [entry["function"] for entry in report["results"]] == ["fused_matmul_relu_exp"]
    assert Database(tmp_path / "t.json").entries
