"""`mirlo fuzz`: a few of the seeds that run by the thousand outside of CI, and the reports of failing ones."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import onnx
import pytest
from commands import mirlo
from drawn_cases import fuzzed
from onnx_models import F32, make_model, node
from onnx_suite import listed_version
from snapshots import assert_snapshot

from mirlo.dialects.context import make_context
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.rules import RuleWarning
from mirlo.runtime.executable import Executable
from mirlo.tools.bisect.oracles import OracleError, either, onnxruntime, reference
from mirlo.tools.cli import main
from mirlo.tools.fuzz import differential, interrupted, sizes, structure, verdict, workers
from mirlo.tools.fuzz.differential import judge_graph
from mirlo.tools.fuzz.graphs import RandomGraph, random_graph
from mirlo.tools.fuzz.modes import MODES
from mirlo.tools.fuzz.mutate import MUTATIONS
from mirlo.tools.fuzz.operators import load_planners
from mirlo.tools.fuzz.programs import NO_MEMORY, OK, SIZES, CallResult, _difference
from mirlo.tools.fuzz.structure_parts import model_to_change
from mirlo.tools.fuzz.workers import JobOutcome, run_jobs

WRONG_RULE = '''
from mirlo.dialects.tir.compute import exp
from mirlo.extend.rules import legalize

@legalize("relax.cumsum", target="llvm", priority=10)
def wrong(op, b):
    """The exponential, which it is not."""
    return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: exp(x[i]), name="wrong"), op.x)
'''


@pytest.mark.sample(0)
@pytest.mark.parametrize(("threads", "first"), [(1, 0), (2, 20)])
def test_random_graphs_are_right(threads: int, first: int, whole: bool) -> None:
    count = 20 if whole else 10
    # Standard output also of a command that fails: it names the seeds.
    report = json.loads(
        mirlo("fuzz", "graphs", "--seed", first, "--count", count, "--threads", threads, "--json").stdout
    )
    assert report["found"] == [] == report["disputed"] and report["states"].get("right", 0) >= 0.9 * count


def test_refusing_a_valid_graph_is_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(job: object, seeds: range, *_: object) -> Iterator[JobOutcome]:
        for seed in seeds:
            yield JobOutcome(seed, verdict.SeedVerdict("refused" if seed == 1 else "right", "no rule"))

    monkeypatch.setattr(workers, "run_jobs", refused)
    assert main(["fuzz", "graphs", "--count", "3"]) == 1
    shown = capsys.readouterr()
    assert "seed 1: refused: no rule" in shown.out and "1 of 3 seeds show a bug" in shown.err
    assert [name for name, mode in MODES.items() if "refused" in mode.bugs] == ["graphs"]


def test_bytes_outside_of_outputs_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(model: Executable, inputs: object, out: dict[str, np.ndarray]) -> None:
        np.lib.stride_tricks.as_strided(out["y"], (5,))[4] = 1  # after the last element

    x = np.ones(4, np.float32)
    model = make_model([node("Relu", "x", "y")], {"x": (F32, (4,))}, ["y"])
    graph = RandomGraph(0, model, {"x": x}, ["Relu"], {"y": 1e-6})
    assert judge_graph(graph).state == "right"
    monkeypatch.setattr(Executable, "run", run)
    assert judge_graph(graph) == verdict.SeedVerdict("failed", "'y': 4 bytes behind it were overwritten")


@pytest.mark.sample(0)
def test_rounding_that_a_node_amplifies_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are integers up to rounding differ by one after Floor."""
    monkeypatch.setattr(differential, "onnxruntime", reference)  # both oracles add in the same order
    x = np.tile(np.arange(1, 65)[:, None] / 300, (1, 300)).astype(np.float32)
    nodes = [node("ReduceSum", "x axes", "total", keepdims=0), node("Floor", "total", "y")]
    model = make_model(nodes, {"x": (F32, x.shape)}, ["y"], {"axes": np.array([1])})
    assert judge_graph(RandomGraph(0, model, {"x": x}, [], {"y": 1e-6})).state == "rounded"


@pytest.mark.sample(0)
def test_broken_files_are_refused(whole: bool) -> None:
    count = 150 if whole else 75
    report = json.loads(mirlo("fuzz", "files", "--count", count, "--json").stdout)
    assert report["found"] == [] and report["states"]["refused"] >= count // 2


def test_hostile_headers_are_refused() -> None:
    report = json.loads(mirlo("fuzz", "headers", "--count", 60, "--json").stdout)
    assert report["found"] == [] and report["states"]["refused"] >= 25


@pytest.mark.sample(1)
@pytest.mark.parametrize("mutation", structure.MUTATIONS, ids=lambda each: each.__name__)
def test_all_kinds_of_a_mutation_change_the_model(mutation: Callable[..., None]) -> None:
    """A kind that fails would end the run of its seed, and a kind that does nothing would try nothing."""
    changed, seeds = 0, iter(range(24))
    while changed < 6:
        seed = next(seeds, None)
        assert seed is not None, f"{changed} of 24 seeds change the model"
        rng = np.random.default_rng([seed, 1])
        model = model_to_change(rng)
        before = model.SerializeToString()
        with contextlib.suppress(structure.DecodeError):  # nested more deeply than protobuf reads
            mutation(model, rng)
        changed += model.SerializeToString() != before


@pytest.mark.sample(0)
def test_hostile_structures_are_refused() -> None:
    """The first seeds of each mutation, and one whose branches once differed in their outputs."""
    report = json.loads(mirlo("fuzz", "structure", "--count", 2 * len(structure.MUTATIONS), "--json").stdout)
    assert report["found"] == [] and report["states"]["refused"] >= 20
    assert set(report["used"]) == {mutation.__name__ for mutation in structure.MUTATIONS}
    branches = structure.judge(185)
    assert branches.state == verdict.REFUSED and "'then_branch' gives" in branches.text
    collected = structure.judge(6037)  # an optional value as a scan output
    assert collected.state == verdict.REFUSED and "must be a tensor, got" in collected.text


@pytest.mark.sample(0)
def test_hostile_sizes_are_refused() -> None:
    """The first seeds, one that once read outside of what it pads, one that once had no end."""
    states = [sizes.judge(seed).state for seed in (*range(0, sizes.BLOCK * len(sizes.ALL), 100), 145, 806)]
    assert not {sizes.WRONG, verdict.FAILED} & set(states) and states.count(verdict.REFUSED) >= 4


def test_kernels_that_are_not_proven_are_findings() -> None:
    """A valid model whose compilation a verification ends is no refusal: random graphs are Mirlo's own kernels."""
    for name in ("verify-bounds", "verify-schedule"):
        assert verdict.verdict_of_error(PassFailed(name, "its index depends on data")).state == verdict.FAILED
    assert verdict.verdict_of_error(PassFailed("legalize", "no rule")).state == verdict.REFUSED


def test_rules_that_raise_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the model is compiled without them."""

    def judge(seed: int) -> verdict.SeedVerdict:
        if seed:
            warnings.warn("rule 'rows' raised", RuleWarning, stacklevel=2)
        return verdict.SeedVerdict("right")

    monkeypatch.setattr(structure, "judge", judge)
    job = MODES["structure"].job(None, None, None)
    assert job(0).state == "right" and job(1) == verdict.SeedVerdict(verdict.FAILED, "rule 'rows' raised")


@pytest.mark.sample(0)
def test_interrupts_are_interrupts() -> None:
    report = json.loads(mirlo("fuzz", "interrupts", "--count", 5, "--json").stdout)
    assert report["found"] == [] and report["states"] == {"interrupted": 5}


def test_what_interrupted_compilations_leave_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    left, compile_graph = [], interrupted._compiled

    def leaking(graph: RandomGraph, target: str, threads: int, opt_level: int) -> Executable:
        left.append(make_context())
        return compile_graph(graph, target, threads, opt_level)

    monkeypatch.setattr(interrupted, "_compiled", leaking)
    found = interrupted.judge(7)
    assert found.state == verdict.FAILED and "more contexts" in found.text


@pytest.mark.parametrize("name", interrupted.KeptResources._fields)
def test_one_more_of_each_is_growth(name: str) -> None:
    before = interrupted.KeptResources(3, 2, 1, 10)
    allowed = interrupted.MOST_NEW_OBJECTS if name == "objects" else 0
    after = before._replace(**{name: getattr(before, name) + allowed})
    assert after.growth(before) == ""
    assert after._replace(**{name: getattr(after, name) + 1}).growth(before) == f"{allowed + 1} more {name}"


def test_interrupts_that_finalizers_drop_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __del__(self) -> None:
            sleep(0.2)

    compile_graph = interrupted._compiled

    def finalizing(graph: RandomGraph, target: str, threads: int, opt_level: int) -> Executable:
        Slow()
        return compile_graph(graph, target, threads, opt_level)

    monkeypatch.setattr(interrupted, "_compiled", finalizing)
    found = interrupted.judge(7)
    assert found.state == verdict.FAILED and "an interrupt was lost in" in found.text


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("level", [0, 1, 3])
def test_random_graphs_are_right_at_other_levels(level: int, target: str) -> None:
    report = json.loads(
        mirlo("fuzz", "graphs", "--target", target, "--opt-level", level, "--count", 10, "--json").stdout
    )
    assert report["found"] == [] and report["states"].get("right", 0) >= 9
    assert "--opt-level is for graphs" in mirlo("fuzz", "files", "--opt-level", 1).stderr


@pytest.mark.sample(0)
def test_empty_axes_are_computed() -> None:
    report = json.loads(mirlo("fuzz", "empty", "--count", 6, "--json").stdout)
    assert report["found"] == [] and report["count"] == 6


def test_a_wrong_rule_is_found_and_its_graphs_are_written(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(WRONG_RULE)
    seed = next(s for s in range(200) if "CumSum" in random_graph(s).operators)
    done = mirlo(
        "fuzz", "graphs", "--seed", seed, "--count", 1, "--json", "--plugin", tmp_path / "plugin.py", "-o", tmp_path
    )
    assert done.returncode == 1 and "1 of 1 seeds show a bug" in done.stderr
    found = json.loads(done.stdout)["found"]
    assert [(entry["seed"], entry["state"]) for entry in found] == [(seed, "wrong")]
    folder = tmp_path / f"graphs-{seed}"
    assert (folder / "model.onnx").is_file() and "mirlo bisect model.onnx" in (folder / "bisect.txt").read_text()


@pytest.mark.skipif(listed_version() != onnx.__version__, reason=f"the table is of onnx {listed_version()}")
def test_models_that_seeds_draw_are_those_of_the_table() -> None:
    assert_snapshot("tools/cli/fuzzed.txt", fuzzed())


WIDE = CallResult(OK, {"y": np.zeros((2, 3), np.float32)})
NARROW = {
    "": WIDE,
    "status 0 with 64 bits, 1 with 32": CallResult(1, {}),
    "'y' has shape [2, 3] with 64 bits, [3, 2] with 32": CallResult(OK, {"y": np.zeros((3, 2), np.float32)}),
    "'y' has other elements with 32 bits": CallResult(OK, {"y": np.ones((2, 3), np.float32)}),
}
"""What a machine of 32 bits may compute, by what describes it."""


@pytest.mark.parametrize("problem", NARROW)
def test_results_of_machines_are_compared(problem: str) -> None:
    assert (_difference(WIDE, NARROW[problem], {"y"}) or "") == problem


def test_a_machine_without_room_differs_from_one_that_refuses() -> None:
    for status in (SIZES, NO_MEMORY):
        assert _difference(WIDE, CallResult(status, {}), {"y"}) is None
        assert _difference(CallResult(NO_MEMORY, {}), CallResult(status, {}), {"y"}) is None
    assert _difference(CallResult(1, {}), CallResult(SIZES, {}), set()) == "status 1 with 64 bits, 2 with 32"
    assert _difference(CallResult(SIZES, {}), WIDE, set()) == "status 2 with 64 bits, 0 with 32"
    assert _difference(WIDE, NARROW["'y' has other elements with 32 bits"], set()) is None  # rounded, not exact


def test_there_are_many_planners_and_mutations() -> None:
    assert len(load_planners()) >= 60 and len(set(MUTATIONS)) >= 12


def test_where_an_oracle_lacks_a_node_the_other_computes_that_node_only() -> None:
    # The reference evaluator leaves numbers as they are in LRN of size 1, ONNX Runtime has no sums of i16.
    short = onnx.TensorProto.INT16
    nodes = [node("LRN", "x", "a", size=1), node("Cast", "a", "i", to=short), node("ReduceSum", "i", "y", keepdims=0)]
    types = {"a": (F32, None), "y": (short, None)}
    model = make_model(nodes, {"x": (F32, [1, 1, 1, 1])}, ["a", "y"], output_types=types)
    feeds = {"x": np.full((1, 1, 1, 1), 100, np.float32)}
    with pytest.raises(OracleError):
        onnxruntime(model, feeds, ["y"])
    values = either(model, feeds, ["a", "y"])
    assert values["a"].item() == pytest.approx(100 / 2**0.75)
    assert values["y"].item() == 59


def _job(seed: int) -> int:
    if seed == 3:
        faulthandler.disable()  # nothing is wrong: no report among those of the tests
        os.abort()
    if seed == 5:
        while True:
            pass
    return seed * seed


@pytest.mark.sample(0)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="jobs are functions of this file")
def test_jobs_that_crash_or_hang_do_not_take_others_with_them() -> None:
    outcomes = {outcome.seed: outcome for outcome in run_jobs(_job, range(8), processes=2, timeout=2)}
    assert sorted(outcomes) == list(range(8))
    assert outcomes[3].crash == "killed by SIGABRT" and outcomes[5].crash.startswith("no result after 2 s")
    assert [outcomes[s].result for s in (0, 1, 2, 4, 6, 7)] == [0, 1, 4, 16, 36, 49]


def _parent(seed: int) -> int:
    """Start a process; the job of seed 1 waits for it in vain."""
    child = get_context("fork").Process(target=sleep, args=(0 if seed != 1 else 60,))
    child.start()
    child.join()
    return child.pid or 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="jobs are functions of this file")
def test_jobs_may_start_processes_which_end_with_them(tmp_path: Path) -> None:
    begun = monotonic()
    outcomes = {outcome.seed: outcome for outcome in run_jobs(_parent, range(3), processes=1, timeout=0.5)}
    assert outcomes[0].result and outcomes[2].result and outcomes[1].crash.startswith("no result after")
    assert monotonic() - begun < 60


def _waiting(seed: int) -> int:
    """Wait for longer than the limit of processor time, or compute for longer."""
    end = monotonic() + 3
    while seed == 1 or monotonic() < end:
        if seed == 0:
            sleep(0.1)
    return seed


@pytest.mark.sample(0)
@pytest.mark.skipif(sys.platform != "linux", reason="processor time of others is read from /proc")
def test_jobs_are_stopped_by_processor_time() -> None:
    """A job that waits for longer than the limit has a result; one that computes for longer has none."""
    outcomes = {outcome.seed: outcome for outcome in run_jobs(_waiting, range(2), processes=1, timeout=1)}
    assert outcomes[0].result == 0 and outcomes[0].crash is None
    assert outcomes[1].crash == "no result after 1 s of processor time"


def _compute_in_own_session(number: Any) -> None:
    os.setsid()
    number.value = os.getpid()
    while True:
        pass


def _starting_sessions(number: Any, seed: int) -> int:
    """Wait for a process that leaves the job's group, as processes that generate code do."""
    if seed:
        child = get_context("fork").Process(target=_compute_in_own_session, args=(number,))
        child.start()
        child.join()
    return seed


@pytest.mark.skipif(sys.platform != "linux", reason="processor time of others is read from /proc")
def test_processes_that_leave_the_group_of_a_job_count_and_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WAITING", 100)
    number = get_context("fork").Value("i", 0)
    jobs = run_jobs(partial(_starting_sessions, number), range(2), processes=1, timeout=0.5)
    outcomes = {outcome.seed: outcome for outcome in jobs}
    assert outcomes[0].result == 0 and outcomes[0].crash is None
    assert outcomes[1].crash == "no result after 0.5 s of processor time"
    assert number.value and _has_ended(number.value)


def _has_ended(process: int) -> bool:
    """Return whether a process that was killed has ended, reaped or not, at once or within a minute."""
    end = monotonic() + 60
    stat = Path(f"/proc/{process}/stat")
    while monotonic() < end:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        sleep(0.01)
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="jobs are functions of this file")
def test_any_number_of_jobs_for_as_long_as_there_is_time() -> None:
    seeds = [outcome.seed for outcome in run_jobs(_quick, count(10), processes=2, timeout=2, seconds=1)]
    assert len(seeds) == len(set(seeds)) >= 5 and min(seeds) == 10


def _quick(seed: int) -> int:
    sleep(0.02)
    return seed
