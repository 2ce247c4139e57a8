"""Placement by cost with executables of known times: comparisons, choices, stored results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.models import open_model
from mirlo.driver.place import measure
from mirlo.driver.place.choose import Problem, choose
from mirlo.driver.place.decision import Decision
from mirlo.driver.place.store import PlacementStore, PlacementStoreError
from mirlo.driver.place.survey import place_parts
from mirlo.extend.codegen import CodeGenerator, is_op
from mirlo.extend.target import Target, register_target
from mirlo.passes.byoc.restrict import as_text
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.figures import Figures
from mirlo.passes.targets import TargetError
from mirlo.runtime.errors import MirloError
from mirlo.runtime.params import ParameterStore
from mirlo.tools.place.decision_text import decision_lines

# exp and sin can go to 'fast', sin and cos to 'wide'; log stays between them, so that there are several regions.
MODEL = """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "relax.exp"(%x) : (tensor<64xf32>) -> tensor<64xf32> loc("a")
  %1 = "relax.log"(%0) : (tensor<64xf32>) -> tensor<64xf32> loc("b")
  %2 = "relax.sin"(%1) : (tensor<64xf32>) -> tensor<64xf32> loc("c")
  %3 = "relax.log"(%2) : (tensor<64xf32>) -> tensor<64xf32> loc("d")
  %4 = "relax.cos"(%3) : (tensor<64xf32>) -> tensor<64xf32> loc("e")
  return %4 : tensor<64xf32>
}
"""


@dataclass(frozen=True)
class FastGenerator(CodeGenerator):
    name = "placed-fast"
    figures = Figures(gflops=1000.0, gbytes=1000.0, call_us=0.01)

    def patterns(self) -> Sequence[Any]:
        return [("each", is_op("relax.exp", "relax.sin"))]


@dataclass(frozen=True)
class WideGenerator(CodeGenerator):
    name = "placed-wide"
    figures = Figures(gflops=1000.0, gbytes=1000.0, call_us=0.01, transfer_gbytes=0.001)

    def patterns(self) -> Sequence[Any]:
        return [("each", is_op("relax.sin", "relax.cos"))]


@dataclass(frozen=True)
class MuteGenerator(CodeGenerator):
    name = "placed-mute"

    def patterns(self) -> Sequence[Any]:
        return [("each", is_op("relax.cos"))]


@dataclass(frozen=True)
class ProductsGenerator(CodeGenerator):
    name = "placed-products"
    figures = Figures(gflops=1.0, gbytes=1000.0, call_us=1.0, operators={"relax.matmul": 1000.0})

    def patterns(self) -> Sequence[Any]:
        return [("product", is_op("relax.matmul"))]


for generator in (FastGenerator, WideGenerator, MuteGenerator, ProductsGenerator):
    register_target(Target(generator.name, "for tests", codegen=generator))
TARGETS = "placed-fast,placed-wide,llvm"


@dataclass
class Clock:
    """A clock that advances only by sleeping, so that times are the same on a busy machine."""

    seconds: float = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


CLOCK = Clock()


@dataclass
class Fake:
    """Compiles nothing; a run takes as long as each operator takes where it is."""

    milliseconds: dict[tuple[str, str], float]
    broken: str = ""
    wrong: str = ""
    compiled: list[str] = field(default_factory=list)

    def compile_as(self, module: Any, params: Any, target: str, nodes: Any, is_whole: bool) -> Any:
        self.compiled.append(f"{target} {as_text(nodes) if nodes is not None else ''}".strip())
        if self.broken and self.broken in target and (nodes is None or nodes[self.broken]):
            raise MirloError(f"{self.broken} is broken")
        targets = Targets.parse(target)
        opened = open_model(module)
        if not targets.generators:
            where = [
                (op.operation.name, "llvm") for op in opened.module.body.operations[0].regions[0].blocks[0].operations
            ]
        else:
            survey = place_parts(opened, targets, as_text(nodes) if nodes is not None else "")
            where = [(node.operator, survey.target_of(node.id)) for node in survey.placement.nodes]
        seconds = sum(self.milliseconds.get(found, 0.0) for found in where) / 1000
        return _Run(seconds, 2.0 if self.wrong and self.wrong in dict(where).values() else 1.0)


@dataclass
class _Run:
    seconds: float
    result: float

    def random_inputs(self, seed: int) -> dict[str, Any]:
        return {"x": np.zeros(64, np.float32)}

    def __call__(self, *inputs: Any) -> Any:
        CLOCK.sleep(1e-5 + self.seconds)
        return np.full(64, self.result, np.float32)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "time", CLOCK)
    monkeypatch.setattr(measure, "MIN_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(measure, "PAUSE", 0.0)


def _module(text: str = MODEL) -> Any:
    with make_context(), ir.Location.unknown():
        return ir.Module.parse(text)


def _choose(fake: Fake, how: str = "measured", targets: str = TARGETS, **given: Any) -> Decision:
    problem = Problem(_module(), ParameterStore(), Targets.parse(targets), 1, fake.compile_as, **given)
    return choose(problem, how)


def test_regions_go_where_they_are_fastest() -> None:
    # By priority, sin goes to 'fast', where it is slow; neither target alone is best.
    fake = Fake({
        ("relax.exp", "llvm"): 6, ("relax.sin", "llvm"): 8, ("relax.cos", "llvm"): 3,
        ("relax.exp", "placed-fast"): 1, ("relax.sin", "placed-fast"): 20,
        ("relax.sin", "placed-wide"): 1, ("relax.cos", "placed-wide"): 12,
    })  # fmt: skip
    decision = _choose(fake)
    assert [c.name for c in decision.candidates] == [
        "all on llvm", "placed-fast, llvm", "placed-wide, llvm", "by priority", "by region",
    ]  # fmt: skip
    assert decision.best == "by region" and decision.nodes == {"placed-fast": [0], "placed-wide": [2]}
    assert [region.best for region in decision.regions] == ["placed-fast", "placed-wide", "llvm"]
    text = "\n".join(decision_lines(decision))
    assert "by region" in text and "← taken" in text and "best on placed-wide" in text


def test_never_slower_than_one_target_alone() -> None:
    # Regions alone are fast on their targets; together they are slow, which only the whole model shows.
    fake = Fake(
        {("relax.exp", "llvm"): 3, ("relax.sin", "llvm"): 3, ("relax.cos", "llvm"): 3, ("relax.log", "llvm"): 1}
    )
    inner = fake.compile_as

    def slow_together(module: Any, params: Any, target: str, nodes: Any, is_whole: bool) -> Any:
        run = inner(module, params, target, nodes, is_whole)
        if is_whole and nodes is not None and all(nodes.values()):
            run.seconds += 0.05
        return run

    problem = Problem(_module(), ParameterStore(), Targets.parse(TARGETS), 1, slow_together)
    decision = choose(problem, "measured")
    times = {c.name: c.microseconds for c in decision.candidates}
    assert decision.best in ("placed-fast, llvm", "placed-wide, llvm")
    assert times[decision.best] == min(t for t in times.values() if t is not None)


def test_what_cannot_be_compiled_or_is_wrong_is_not_taken() -> None:
    slow_host = {(f"relax.{name}", "llvm"): 5.0 for name in ("exp", "sin", "cos")}
    decision = _choose(Fake(slow_host, broken="placed-fast"))
    problems = {c.name: c.problem for c in decision.candidates}
    assert decision.best == "placed-wide, llvm"
    assert problems["placed-fast, llvm"] == "cannot be compiled: placed-fast is broken"
    decision = _choose(Fake(slow_host, wrong="placed-fast"))
    assert decision.best == "placed-wide, llvm"
    assert {c.name for c in decision.candidates if "results differ" in c.problem} >= {
        "placed-fast, llvm",
        "by priority",
    }


def test_an_error_of_everything_is_told() -> None:
    def nothing(*unused: Any) -> Any:
        raise MirloError("no code today")

    with pytest.raises(MirloError, match="no code today"):
        choose(Problem(_module(), ParameterStore(), Targets.parse(TARGETS), 1, nothing), "measured")


def test_measurements_are_kept(tmp_path: Path) -> None:
    known = PlacementStore(tmp_path / "deep" / "placement.json")
    first = _choose(Fake({("relax.exp", "llvm"): 2}), known=known)
    again = Fake({})
    second = _choose(again, known=known)
    assert not again.compiled and second.known and second.nodes == first.nodes and second.best == first.best
    assert "measured before" in next(decision_lines(second))
    other = Fake({})
    _choose(other, known=known, settings="opt_level=3")
    assert other.compiled and len(json.loads(known.path.read_text())["entries"]) == 2
    _choose(unkept := Fake({}), known=known, settings=None)
    assert unkept.compiled and len(json.loads(known.path.read_text())["entries"]) == 2


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "placement.json").write_text('{"version": 1, "entries": [')
    with pytest.raises(
        PlacementStoreError, match=r"placement\.json' holds no measurements of placements: .*; delete it"
    ):
        _choose(Fake({}), known=PlacementStore(tmp_path / "placement.json"))


def test_estimates_count_transfers() -> None:
    fake = Fake({})
    decision = _choose(fake, "estimated")
    # 'wide' computes as fast as 'fast', but what it is handed goes through a straw.
    assert not fake.compiled
    costs = {region.region: region.microseconds for region in decision.regions}
    wide = costs["placed-wide_region_0"]
    assert wide["placed-wide"] == pytest.approx(0.01 + 2 * 64 * 4 / 1e-3 / 1e9 * 1e6, rel=0.01) and wide["llvm"] < 1
    assert [region.best for region in decision.regions] == ["placed-fast", "placed-fast", "llvm"]
    # And all five on the host are one kernel: what is cut out of a chain costs the others their fusion.
    whole = {candidate.name: candidate.microseconds for candidate in decision.candidates}
    assert decision.best == "all on llvm" and whole["all on llvm"] < 0.5 < whole["placed-fast, llvm"] < 1
    assert whole["by priority"] > 500


def test_estimates_of_work() -> None:
    text = """
    func.func @main(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>) -> tensor<512x512xf32> {
      %0 = "relax.matmul"(%a, %b) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
      return %0 : tensor<512x512xf32>
    }
    """
    table = Figures(gflops=1.0, gbytes=1.0, operators={"relax.matmul": 500.0})
    assert table.microseconds(10**9, 0, "relax.matmul") == 2000 and table.microseconds(10**9, 0, "relax.add", 2) == 5e5
    targets = Targets.parse("placed-products,llvm")
    problem = Problem(_module(text), ParameterStore(), targets, 1, Fake({}).compile_as)
    decision = choose(problem, "estimated")
    assert decision.best == "placed-products, llvm" and decision.nodes == {"placed-products": [0]}
    assert decision.candidates[1].microseconds == pytest.approx(2 * 512**3 / 1e6 + 1, rel=0.01)


def test_estimates_need_figures() -> None:
    with pytest.raises(TargetError, match="target 'placed-mute' declares no figures of its speed"):
        _choose(Fake({}), "estimated", "placed-mute,llvm")


def test_open_dims_are_told() -> None:
    text = MODEL.replace("tensor<64xf32>", 'tensor<?xf32, #relax.dims<["n"]>>')
    problem = Problem(_module(text), ParameterStore(), Targets.parse(TARGETS), 1, Fake({}).compile_as)
    with pytest.raises(TargetError, match="placement by cost needs a number for each dim"):
        choose(problem, "measured")
