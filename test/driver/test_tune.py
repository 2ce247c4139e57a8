"""Tuning: choices are passed to kernels, measurements are stored, slower or wrong choices are not."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from commands import mirlo, output_of
from onnx_models import F32, make_model, node

import mirlo as package
from mirlo.driver.tune import measure
from mirlo.driver.tune.database import Database, DatabaseError, TuningEntry
from mirlo.driver.tune.fleet import Fleet, FleetError
from mirlo.driver.tune.inside import Inside, time_inside
from mirlo.driver.tune.measure import ChoiceTiming, Local, time_choices
from mirlo.driver.tune.ranking import least_expected, promising, rank_correlation
from mirlo.driver.tune.search import in_flight, search, tune
from mirlo.driver.tune.tasks import TuningTask, tasks_of
from mirlo.extend.rules import Choice, decline
from mirlo.extend.schedules import Schedule
from mirlo.passes.rules import ANY, SCHEDULE
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.runtime.errors import MirloError

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((64, 48), dtype=np.float32)
NAME = "fused_matmul_relu_exp"


def _model():
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "y"), node("Exp", "y", "z")]
    return make_model(nodes, {"x": (F32, [32, 64])}, ["z"], {"w": WEIGHT})


class Pretended:
    """Says that one choice takes a given part of the time."""

    def __init__(self, ratio: float, again: float | None = None) -> None:
        self.ratio, self.again, self.asked = ratio, again, 0

    def ratios(self, task, choices, target, threads):
        if len(choices) == 1 and self.again is not None:
            return ChoiceTiming(100.0, (self.again,))
        self.asked += len(choices)
        return ChoiceTiming(100.0, tuple(self.ratio if choice == task.choices[1] else 1.1 for choice in choices))


def test_kernels_with_choices_are_tasks():
    tasks, kernels = tasks_of(_model(), "llvm", 1)
    assert kernels == 1 and [task.function for task in tasks] == ["fused_matmul_relu_exp"]
    # Machines with few vector registers have several tiles along the rows, and blocks of these.
    names = {"tile_rows", "tile_vectors", "pack", "row_block"}
    assert tasks[0].choices and all(set(choice) <= names for choice in tasks[0].choices)


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


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("model", "names"),
    [
        (_model, {"tile_rows", "tile_vectors", "pack"}), (_row, {"lead_bytes"}), (_attention, {"block_rows"}),
        (_softmax, {"unroll", "lanes"}), (_pool, {"unroll", "lanes"}),
    ],
)  # fmt: skip
def test_all_choices_compute_the_same(model, names):
    tasks, _ = tasks_of(model(), "llvm", 1)
    task = next(task for task in tasks if names & {name for choice in task.choices for name in choice})
    timing = time_choices(task, task.choices[:6], "llvm", 1)
    assert timing.microseconds > 0 and all(ratio is not None for ratio in timing.ratios)


@contextmanager
def _rule(function, space=None):
    """Register a rule of a user for target llvm, which is tried first."""
    function.__module__ = "plugin"
    SCHEDULE.add(ANY, "llvm", function, 1000, space=space)
    try:
        yield
    finally:
        SCHEDULE.forget("plugin")


def _tiles(
    kernel: Kernel,
    context: ScheduleContext,
    rows: Annotated[int, Choice(range(1, 9), "rows of a tile", tried=(2, 4, 8))] = 4,
    lanes: Annotated[int, Choice(range(1, 33), "columns of a tile", tried=(5,))] = 8,
):
    """Take functions of one block, in tiles."""
    s = Schedule(kernel.view.op)
    if len(s.blocks()) != 1 or len(s.loops(s.blocks()[0])) != 2:
        return decline("not one block with two loops")
    s.tile(s.loops(s.blocks()[0]), (rows, lanes))
    return s.emit(choices={"rows": rows, "lanes": lanes})


def _product_and_more():
    nodes = [node("Exp", "x", "e"), node("MatMul", "e w", "m"), node("Softmax", "m", "y", axis=1)]
    return make_model(nodes, {"x": (F32, [32, 64])}, ["y"], {"w": WEIGHT})


def test_what_is_measured_is_that_of_the_rule_that_takes_a_kernel(tmp_path: Path):
    """A user's rule has only its own choices; kernels of the target's rules have theirs."""
    points = {}
    with _rule(_tiles):
        for task in tasks_of(_product_and_more(), "llvm", 1)[0]:
            points[task.function] = task.choices
        assert points["exp"] == ({"rows": 2}, {"rows": 8}, {"lanes": 5})
        assert {"unroll": 2} in points["softmax"] and not any({"rows"} & set(point) for point in points["softmax"])
        assert all({"tile_rows", "tile_vectors", "pack", "row_block"} >= set(point) for point in points["matmul"])
        exp = next(task for task in tasks_of(_product_and_more(), "llvm", 1)[0] if task.function == "exp")
        timing = time_choices(exp, exp.choices, "llvm", 1)
        assert timing.microseconds > 0 and all(ratio is not None for ratio in timing.ratios)


def test_a_rule_without_choices_has_nothing_to_measure():
    def plain(kernel: Kernel, context: ScheduleContext):
        return Schedule(kernel.view.op).emit()

    with _rule(plain):
        assert tasks_of(_product_and_more(), "llvm", 1)[0] == []


def test_a_rule_may_compute_what_is_measured():
    def few(kernel: Kernel, context: ScheduleContext):
        return [{"rows": len(kernel.view.blocks) + context.options["threads"]}]

    with _rule(_tiles, few):
        exp = next(task for task in tasks_of(_product_and_more(), "llvm", 2)[0] if task.function == "exp")
        assert exp.choices == ({"rows": 3},)
    message = "rule '_tiles' does not choose 'unroll'; it chooses rows, lanes"
    with _rule(_tiles, lambda kernel, context: [{"unroll": 2}]), pytest.raises(MirloError, match=message):
        tasks_of(_product_and_more(), "llvm", 1)


@pytest.mark.sample(0)
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
    told = max(stages.glob("*apply-tuning.mlir")).read_text()
    assert "tir.tuned = {" in told
    plain = package.compile(_model(), tune=False, save_ir=tmp_path / "plain", cache=False)
    np.testing.assert_allclose(plain(x), f(x), rtol=1e-5)
    assert "tir.tuned" not in max((tmp_path / "plain").glob("*apply-tuning.mlir")).read_text()


def test_kernels_that_take_longest_are_searched_first(tmp_path: Path):
    """What is left of the time is divided from the most costly to the least."""

    class Costs(Pretended):
        def ratios(self, task, choices, target, threads):
            measured.append(task.function)
            self.asked += len(choices)
            cost = 3.0 if task.function.endswith("exp") else 1.0
            return ChoiceTiming(cost, tuple(1.0 for _ in choices))

    measured: list[str] = []
    report = tune(_two_kernels(), Database(tmp_path / "t.json"), measurer=Costs(1.0), seconds=30)
    order = [name.rpartition("_")[2] for name in measured]
    assert order[:3] == ["relu", "exp", "exp"] and order[-1] == "relu"
    assert [result.microseconds for result in report.results] == [3.0, 1.0]


def _two_kernels():
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("MatMul", "r v", "n"), node("Exp", "n", "y")]
    weights = {"w": WEIGHT, "v": RNG.standard_normal((48, 80), dtype=np.float32)}
    return make_model(nodes, {"x": (F32, [32, 64])}, ["y"], weights)


class Together(Pretended):
    """Measures on two workers: returns when both have the kernel that they measure."""

    workers = 2

    def __init__(self) -> None:
        super().__init__(0.5)
        self.both, self.at_once = threading.Barrier(2), 0

    def ratios(self, task, choices, target, threads):
        if not choices:  # the first measurement of each kernel
            self.both.wait(60)
            self.at_once += 1
        return super().ratios(task, choices, target, threads)


def test_kernels_are_measured_on_all_workers(tmp_path: Path):
    database, measurer = Database(tmp_path / "t.json"), Together()
    report = tune(_two_kernels(), database, measurer=measurer, seconds=60)
    assert measurer.at_once == 2 and len(report.results) == len(database) == 2 and report.left == 0
    assert all(result.ratio == 0.5 for result in report.results)


@pytest.mark.parametrize("workers", (1, 3))
def test_as_many_are_in_flight_as_there_are_workers(workers: int):
    running, most, lock, all_run = 0, 0, threading.Lock(), threading.Barrier(workers)

    def work(position: int, item: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if position < workers:
            all_run.wait(60)
        with lock:
            running -= 1
        return f"{position}{item}"

    assert in_flight("abcdefg", work, workers, lambda position: position < 5) == ["0a", "1b", "2c", "3d", "4e"]
    assert most == workers


@pytest.mark.parametrize("workers", (1, 3))
def test_nothing_is_begun_after_a_failure(workers: int):
    begun: list[int] = []
    all_run, failed = threading.Barrier(workers), threading.Event()

    def work(position: int, item: str) -> str:
        begun.append(position)
        all_run.wait(60)
        if position == 0:
            failed.set()
            raise MirloError("a worker is gone")
        failed.wait(60)
        time.sleep(0.2)  # the other thread records its error
        return item

    with pytest.raises(MirloError, match="a worker is gone"):
        in_flight("abcdefghijkl", work, workers, lambda _: True)
    assert sorted(begun) == list(range(workers))


class PretendedRay:
    """A Ray cluster whose nodes and answers a test gives."""

    def __init__(self, nodes: list[dict[str, float]], answer: object = None) -> None:
        self.resources, self.answer, self.cancelled = nodes, answer, 0
        self.looks_until_done = 2 if answer is not None else 1 << 30

    def is_initialized(self) -> bool:
        return True

    def nodes(self):
        return [{"Alive": bool(node), "Resources": node} for node in self.resources]

    def remote(self, function):
        ray = self

        class Function:
            def options(self, **options):
                return self

            def remote(self, *arguments):
                return ray

        return Function()

    def wait(self, references, timeout):
        self.looks_until_done -= 1
        return (references, []) if self.looks_until_done <= 0 else ([], references)

    def get(self, reference):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def cancel(self, reference, force):
        self.cancelled += 1


def test_measurements_on_a_cluster(monkeypatch: pytest.MonkeyPatch):
    """A measurement ends with a result or an error: when workers are gone, or a worker takes too long."""
    task = tasks_of(_model(), "llvm", 1)[0][0]

    def measure(nodes: list[dict[str, float]], answer: object = None, **options: object) -> object:
        ray = PretendedRay(nodes, answer)
        monkeypatch.setitem(sys.modules, "ray", ray)
        found = Fleet("host:1", **options)
        return found.workers if answer == "workers" else found.ratios(task, [{}], "llvm", 1)

    timing = ChoiceTiming(1.0, (0.5,))
    assert measure([{"CPU": 2.0}], timing) is timing
    assert measure([{"CPU": 4.0}, {"CPU": 3.0}, {}], "workers", cpus=2.0) == 3
    assert measure([{"CPU": 4.0}, {"CPU": 2.0, "mirlo_zen5": 1.0}], "workers", resource="mirlo_zen5") == 2
    assert measure([{}], "workers") == 1
    limits = {
        "GONE_SECONDS": (
            {},
            "no worker is left in the Ray cluster at 'host:1' with the resource 'a': start workers again",
        ),
        "MAX_SECONDS": ({"CPU": 1.0, "a": 1.0}, f"a measurement of @{NAME} takes longer than 0 s: is a worker stuck?"),
    }
    for limit, (node_resources, expected) in limits.items():
        with monkeypatch.context() as patch:
            patch.setattr(f"mirlo.driver.tune.fleet.{limit}", 0.0)
            with pytest.raises(FleetError, match=re.escape(expected)):
                measure([node_resources], resource="a")
    with pytest.raises(MirloError, match="^no such kernel$"):
        measure([{"CPU": 1.0}], MirloError("no such kernel"))
    with pytest.raises(FleetError, match=f"a measurement of @{NAME} failed on a worker: killed"):
        measure([{"CPU": 1.0}], OSError("killed"))


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


def test_values_that_no_rule_allows_are_measured_again(tmp_path: Path):
    """A file of another version may contain such values next to valid ones."""
    database = Database(tmp_path / "tuning.json")
    (task,), _ = tasks_of(_model(), "llvm", 1)
    stale = {**task.choices[1], "tile_rows": 10**6}
    database.add(task.key, TuningEntry(stale, 0.5, 100.0, NAME, 8))
    measurer = Pretended(0.5)
    report = tune(_model(), database, measurer=measurer, seconds=5)
    assert measurer.asked > 0 and [result.known for result in report.results] == [False]
    assert Database(database.path).find(task.key) == task.choices[1]


def test_processes_add_to_one_file(tmp_path: Path):
    first, second = Database(tmp_path / "t.json"), Database(tmp_path / "t.json")
    entry = TuningEntry({"pack": 1}, 0.5, 3.0, "f", 4)
    first.add("a", entry)
    second.add("b", entry)
    assert set(Database(tmp_path / "t.json").entries) == {"a", "b"}


@pytest.mark.parametrize("text", ["{", '{"version": 1}', '{"version": 7, "entries": {}}', "[]"])
def test_a_damaged_database_is_an_error(tmp_path: Path, text: str):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DatabaseError, match="t.json"):
        Database(tmp_path / "t.json")


def test_targets_without_choices_say_so():
    with pytest.raises(MirloError, match="target 'spirv' has nothing to tune"):
        tasks_of(_model(), "spirv", 1)


@pytest.mark.sample(0)
def test_the_command(tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(_model().SerializeToString())
    flags = ("--seconds", 20, "--database", tmp_path / "t.json", "--json")
    report = json.loads(output_of(mirlo("tune", tmp_path / "m.onnx", *flags)))
    assert report["kernels"] == 1 and [entry["function"] for entry in report["results"]] == ["fused_matmul_relu_exp"]
    assert Database(tmp_path / "t.json").entries


def _convolution(channels: int = 64):
    weight = np.random.default_rng(1).standard_normal((64, channels, 3, 3), dtype=np.float32)
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    return make_model(nodes, {"x": (F32, [1, channels, 14, 14])}, ["y"], {"w": weight})


@pytest.mark.sample(0)
def test_ways_to_compute_a_convolution_are_measured_and_kept(tmp_path: Path):
    (task,), count = tasks_of(_convolution(), "llvm", 1, operators=True)
    assert count == 1 and task.operator == "relax.conv" and {"winograd"} == {*task.choices[0]}
    assert len(task.choices) == 2 and all(cost is not None for cost in task.expected)
    timing = time_choices(task, task.choices, "llvm", 1)
    assert all(ratio is not None for ratio in timing.ratios)
    database = Database(tmp_path / "t.json")
    database.add(task.key, TuningEntry({"winograd": 0}, 0.5, 1.0, "c", 1))
    x = RNG.standard_normal((1, 64, 14, 14), dtype=np.float32)
    plain, tuned = (package.compile(_convolution(), tune=tune, cache=False) for tune in (False, database))
    assert len(tuned.artifact.kernels) < len(plain.artifact.kernels)
    np.testing.assert_allclose(tuned(x), plain(x), rtol=1e-3, atol=1e-3)
    # Its kernels are those of the way that was chosen.
    assert "fused_conv_relu" in [task.function for task in tasks_of(_convolution(), "llvm", 1, database=database)[0]]


def test_explain_tells_what_was_measured(tmp_path: Path):
    from mirlo.tools.explain.model import explain_model
    from mirlo.tools.explain.report import text_lines

    database = Database(tmp_path / "t.json")
    (way,), _ = tasks_of(_convolution(), "llvm", 1, operators=True)
    database.add(way.key, TuningEntry({"winograd": 0}, 0.5, 1.0, "c", 1))
    kernels, _ = tasks_of(_convolution(), "llvm", 1, database=database)
    kernel = next(task for task in kernels if task.function == "fused_conv_relu")
    database.add(kernel.key, TuningEntry({"row_block": 2}, 0.9, 1.0, "c", 1))
    text = "\n".join(text_lines(explain_model(_convolution(), tune=database)))
    assert "measured best: winograd=0" in text and "measured best: row_block=2" in text


def test_a_kernel_is_the_same_in_every_model():
    """What is found for one model serves others, whatever stands around the kernel there."""
    first = [node("MatMul", "x w", "m"), node("Relu", "m", "y"), node("Exp", "y", "z")]
    second = [node("MatMul", "x v", "n"), node("Tanh", "n", "t")]
    weights = {"w": WEIGHT, "v": RNG.standard_normal((64, 80), dtype=np.float32)}

    def keys(nodes, outputs):
        named = {name: array for name, array in weights.items() if any(name in n.input for n in nodes)}
        tasks, _ = tasks_of(make_model(nodes, {"x": (F32, [32, 64])}, outputs, named), "llvm", 1)
        return {task.key for task in tasks}

    apart = keys(first, ["z"]), keys(second, ["t"])
    assert keys(first + second, ["z", "t"]) == apart[0] | apart[1] and len(apart[0] | apart[1]) == 2


def test_only_what_is_promising_is_measured():
    choices = tuple({"a": i} for i in range(5))
    task = TuningTask("k", "f", 1, "", "", choices, expected=(1.2, None, 0.8, 2.0, 1.0))
    assert promising(task) == [2, 1, 4, 0]
    assert promising(TuningTask("k", "f", 1, "", "", choices)) == [0, 1, 2, 3, 4]


def test_how_well_an_order_was_foreseen():
    rising = [float(i) for i in range(12)]
    assert rank_correlation(rising, [i * i for i in rising]) == pytest.approx(1)
    assert rank_correlation(rising, rising[::-1]) == pytest.approx(-1)
    assert rank_correlation([1.0] * 12, rising) is None
    assert rank_correlation(rising[:2], rising[:2]) is None


def test_what_is_expected_to_be_slow_has_its_own_time(tmp_path: Path):
    task = TuningTask("k", "f", 1, "", "", ({"a": 1},), expected=(2.0,))
    result = search(task, Pretended(0.5), "llvm", 1, 30, print, 7.0)
    assert (result.values, result.trials, result.microseconds) == ({}, 0, 7.0)


def test_choices_of_different_things_are_tried_together(tmp_path: Path):
    class Both(Pretended):
        def ratios(self, task, choices, target, threads):
            single = [{"pack": 1}, {"tile_rows": 2, "tile_vectors": 1}]
            worth = {str(single[0]): 0.9, str(single[1]): 0.8, str({**single[1], **single[0]}): 0.7}
            return ChoiceTiming(100.0, tuple(worth.get(str(choice), 1.0) for choice in choices))

    task = TuningTask("k", "f", 1, "", "", ({"pack": 1}, {"tile_rows": 2, "tile_vectors": 1}, {"tile_rows": 9}))
    assert search(task, Both(0.5), "llvm", 1, 30, print).values == {"tile_rows": 2, "tile_vectors": 1, "pack": 1}


def test_what_is_slower_inside_of_the_model_is_let_go(tmp_path: Path, monkeypatch):
    from mirlo.driver.tune import search as searching

    class Here(Local):
        def ratios(self, task, choices, target, threads):
            return ChoiceTiming(100.0, tuple(0.5 for _ in choices))

    database = Database(tmp_path / "t.json")
    monkeypatch.setattr(searching, "time_inside", lambda *a, **k: Inside(1.01, {NAME: 1.01}, {NAME: 1.0}))
    report = tune(_model(), database, measurer=Here(), seconds=20)
    assert [result.values for result in report.results] == [{}] and report.inside is None
    assert [entry.values for entry in database.entries.values()] == [{}]


def test_models_are_timed_with_and_without_what_was_found(tmp_path: Path):
    database = Database(tmp_path / "t.json")
    (task,), _ = tasks_of(_model(), "llvm", 1)
    database.add(task.key, TuningEntry({"tile_rows": 1, "tile_vectors": 1}, 0.5, 1.0, "f", 1))
    found = time_inside(_model(), database, [task.key], target="llvm", threads=1, shapes=None, seconds=0.1)
    assert set(found.kernels) == {NAME} and found.whole > 0 and found.shares == {NAME: 1.0}
    assert Inside(1.0, {"a": 0.5, "b": 2.0}, {"a": 0.4, "b": 0.1}).with_only({"a"}) == pytest.approx(0.8)


@pytest.mark.sample(0)
def test_what_loses_the_short_rounds_is_not_measured_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight choices the three fastest that beat the kernel's own schedule are."""
    (task,), _ = tasks_of(_model(), "llvm", 1)
    choices = [{"row_block": count} for count in range(1, 9)]
    microseconds = [100.0, 90.0, 95.0, 120.0, 80.0, 99.5, 97.0, 85.0]
    runs: dict[int, int] = {}

    def timed(executable: object, inputs: object, repeats: int) -> float:
        number = made.get(id(executable))
        if number is None:
            return 100.0
        runs[number] = runs.get(number, 0) + 1
        return microseconds[number]

    made: dict[int, int] = {}

    def compiled(task: TuningTask, values: dict[str, int], target: str, threads: int) -> object:
        result = compile_task(task, {}, target, threads)
        if values:
            made[id(result)] = values["row_block"] - 1
            kept.append(result)
        return result

    kept: list[object] = []
    compile_task = measure.compile_task
    monkeypatch.setattr(measure, "compile_task", compiled)
    monkeypatch.setattr(measure, "_time", timed)
    timing = time_choices(task, choices, "llvm", 1)
    assert [round(ratio or 0, 3) for ratio in timing.ratios] == [each / 100 for each in microseconds]
    longer = {number for number, count in runs.items() if count == measure.HEATS + measure.ROUNDS}
    assert longer == {1, 4, 7} and set(runs.values()) == {measure.HEATS, measure.HEATS + measure.ROUNDS}


def test_a_choice_that_differs_from_the_definition_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,), _ = tasks_of(_model(), "llvm", 1)
    own, other = (measure.compile_task(task, {}, "llvm", 1) for _ in range(2))
    measure._own_kernel.cache_clear()
    monkeypatch.setattr(measure, "compile_task", lambda task, values, target, threads: other if values else own)
    monkeypatch.setattr(measure, "_time", lambda executable, inputs, repeats: 50.0 if executable is other else 100.0)
    for is_right, expected in ((True, 0.5), (False, None)):
        monkeypatch.setattr(measure, "is_verified", lambda module, passes, store, right=is_right: right)
        assert time_choices(task, task.choices[:1], "llvm", 1).ratios == (expected,)
    measure._own_kernel.cache_clear()


def test_choices_are_compared_with_the_definition() -> None:
    (task,), _ = tasks_of(_model(), "llvm", 1)
    assert measure._is_right(task, task.choices[0])


def test_a_search_says_what_it_expects(tmp_path: Path) -> None:
    lines: list[str] = []
    report = tune(
        _two_kernels(), Database(tmp_path / "t.json"), measurer=Pretended(1.0), seconds=30, progress=lines.append
    )
    assert report.forecast is not None and 0 < report.forecast <= 1
    begin = next(i for i, line in enumerate(lines) if f"expects {report.forecast:.2f} of it" in line)
    assert any(" tried" in line for line in lines[begin:]) and not any(" tried" in line for line in lines[:begin])
    task = TuningTask("k", "f", 1, "", "", ({}, {}), expected=(0.7, None))
    assert least_expected(task) == 0.7 and least_expected(TuningTask("k", "f", 1, "", "", ())) == 1.0


def test_only_the_kernels_that_are_named(tmp_path: Path):
    nodes = [node("MatMul", "x w", "m"), node("Softmax", "m", "s"), node("MatMul", "s v", "z")]
    weights = {"w": WEIGHT, "v": RNG.standard_normal((48, 32), dtype=np.float32)}
    model = make_model(nodes, {"x": (F32, [32, 64])}, ["z"], weights)
    names = [task.function for task in tasks_of(model, "llvm", 1)[0]]
    (only,), _ = tasks_of(model, "llvm", 1, kernels=names[-1:])
    assert only.function == names[-1] and len(names) > 1
    report = tune(model, Database(tmp_path / "t.json"), seconds=1, measurer=Pretended(1.1), kernels=names[:1])
    assert [result.function for result in report.results] == names[:1] and report.left == 0
    with pytest.raises(MirloError, match="the model has no kernel 'matmulx'; did you mean '.*'\\?; its kernels: .*"):
        tasks_of(model, "llvm", 1, kernels=["matmulx"])


def test_choices_that_are_not_worth_a_trial_are_counted():
    task = TuningTask("k", "f", 1, "", "", ({"a": 1}, {"a": 2}), (1.5, 2.0))
    outcome = search(task, Pretended(1.1), "llvm", 1, 1.0, lambda _: None, 5.0)
    assert (outcome.trials, outcome.skipped, outcome.values) == (0, 2, {})


@pytest.mark.sample(0)
def test_a_database_of_the_command_line(tmp_path: Path):
    import onnx

    path, database = tmp_path / "m.onnx", tmp_path / "t.json"
    onnx.save(_model(), path)
    (task,), _ = tasks_of(_model(), "llvm", 1)
    Database(database).add(task.key, TuningEntry({"tile_rows": 3, "tile_vectors": 1}, 0.5, 1.0, NAME, 1))
    for flags in (["--database", database], ["--database", database, "--kernel", NAME]):
        assert "measured best: tile_rows=3, tile_vectors=1" in output_of(mirlo("explain", path, *flags))
    assert "measured best" not in output_of(mirlo("explain", path, "--no-tuning"))
    missing = mirlo("compile", path, "--database", tmp_path / "none.json")
    assert missing.returncode == 2 and "there is no file" in missing.stderr
    tuned = output_of(mirlo("tune", path, "--kernel", f"@{NAME}", "--database", database))
    assert "(known)" in tuned and f"compilations use it with --database {database}" in tuned
    assert "1 kernels and operators with choices: 1 are faster, 0 are not, 0 were left for lack of time" in tuned
    unknown = mirlo("tune", path, "--kernel", "nothing", "--database", database)
    assert f"the model has no kernel 'nothing'; its kernels: {NAME}" in unknown.stderr
