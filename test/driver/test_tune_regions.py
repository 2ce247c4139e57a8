"""Tuning of regions: code generators say what may be chosen, and get what was found when they compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.tune.database import Database
from mirlo.driver.tune.search import tune
from mirlo.extend.codegen import CodeGenerator, ExternalModule, Tunable, is_const, is_op, wildcard
from mirlo.extend.runtime import NativeCode
from mirlo.extend.target import Target, option, register_target
from mirlo.runtime.errors import MirloError
from mirlo.testing import temporary_registrations

TIMES: dict[str, Callable[[Mapping[str, int]], float]] = {}
"""What the parts of a test take, by their keys."""
COMPILED: list[dict[str, dict[str, int]]] = []
SOURCE = """
#include <mirlo.h>
int NAME(const mirlo_region *region, DLTensor **tensors, int64_t count) {
  float *x = tensors[0]->data, *y = tensors[count - 1]->data;
  for (int64_t i = 0; i < tensors[0]->shape[0]; ++i) y[i] = 2 * x[i];
  return 0;
}
"""


@dataclass(frozen=True)
class Doubling(CodeGenerator):
    """Multiplications, each with a choice of `width`."""

    name = "doubling"
    guarded = False
    size: int = option(1, "an option of the code generator")

    def patterns(self):  # type: ignore[no-untyped-def]
        return [("double", is_op("relax.multiply")(wildcard(), is_const()))]

    def tunables(self, module: ExternalModule) -> list[Tunable]:
        nodes = [node for function in module.functions for node in function.nodes]
        choices = [{"width": width} for width in (2, 4, 8)]
        return [Tunable(str(n.output.shape), n.name, choices, TIMES[str(n.output.shape)]) for n in nodes]

    def codegen(self, module: ExternalModule) -> NativeCode:
        nodes = [node for function in module.functions for node in function.nodes]
        COMPILED.append({n.name: dict(module.tuned_values(str(n.output.shape))) for n in nodes})
        return NativeCode(sources={f"{name}.c": SOURCE.replace("NAME", name) for name in module.names})

    def fingerprint(self) -> str:
        return TIMES.get("version", lambda values: 1)({}).__str__()


@pytest.fixture(autouse=True)
def doubling() -> Iterator[None]:
    TIMES.clear()
    COMPILED.clear()
    with temporary_registrations(__name__):
        register_target(Target("doubling", "a test", codegen=Doubling))
        yield


def _model(*sizes: int):  # type: ignore[no-untyped-def]
    nodes = [node("Mul", f"x{i} two", f"y{i}") for i in range(len(sizes))]
    inputs = {f"x{i}": (F32, [size]) for i, size in enumerate(sizes)}
    return make_model(nodes, inputs, [f"y{i}" for i in range(len(sizes))], {"two": np.full(1, 2, np.float32)})


@pytest.mark.sample(0)
def test_what_is_fastest_is_kept_and_used(tmp_path: Path) -> None:
    TIMES["(6,)"] = lambda values: {None: 10.0, 2: 12.0, 4: 7.0, 8: 9.0}[values.get("width")]
    TIMES["(7,)"] = lambda values: 5.0
    database = Database(tmp_path / "tuning.json")
    report = tune(_model(6, 7, 6), database, target="doubling,llvm", seconds=60)
    parts = {result.function: result for result in report.results if result.region}
    assert {(r.calls, r.ratio, tuple(r.values.items()), r.trials) for r in parts.values()} == {
        (2, 0.7, (("width", 4),), 3), (1, 1.0, (), 3),
    }  # fmt: skip
    executable = mirlo.compile(_model(6, 7, 6), "doubling,llvm", cache=False, tune=database)
    assert sorted(COMPILED[-1].values(), key=len) == [{}, {"width": 4}, {"width": 4}]
    arrays = [np.arange(size, dtype=np.float32) for size in (6, 7, 6)]
    for array, doubled in zip(arrays, executable(*arrays), strict=True):
        np.testing.assert_array_equal(doubled, 2 * array)
    again = tune(_model(6), database, target="doubling,llvm", seconds=60)
    assert [result.known for result in again.results if result.region] == [True]
    mirlo.compile(_model(6), "doubling,llvm", cache=False, tune=False)
    assert list(COMPILED[-1].values()) == [{}]


def test_times_that_differ_must_be_shorter_twice(tmp_path: Path) -> None:
    noise = iter([10.0, 12.0, 9.9, 9.8, 9.7, 9.6])
    TIMES["(6,)"] = lambda values: next(noise)
    report = tune(_model(6), Database(tmp_path / "tuning.json"), target="doubling,llvm", seconds=60)
    (result,) = [result for result in report.results if result.region]
    assert (result.ratio, result.values) == (1.0, {})


def test_what_another_version_found_is_not_used(tmp_path: Path) -> None:
    TIMES["(6,)"] = lambda values: 1.0 if values.get("width") == 8 else 2.0
    database = Database(tmp_path / "tuning.json")
    tune(_model(6), database, target="doubling,llvm", seconds=60)
    mirlo.compile(_model(6), "doubling,llvm", cache=False, tune=database)
    assert list(COMPILED[-1].values()) == [{"width": 8}]
    TIMES["version"] = lambda values: 2
    mirlo.compile(_model(6), "doubling,llvm", cache=False, tune=database)
    assert list(COMPILED[-1].values()) == [{}]


def test_failures_name_the_code_generator(tmp_path: Path) -> None:
    def fail(values: Mapping[str, int]) -> float:
        raise RuntimeError("the board is off")

    TIMES["(6,)"] = fail
    with pytest.raises(MirloError, match=r"code generator of target 'doubling' .*the board is off.* its own choices"):
        tune(_model(6), Database(tmp_path / "tuning.json"), target="doubling,llvm", seconds=60)


def test_modules_hold_what_was_found() -> None:
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context
    from mirlo.passes.byoc.read_external import read_external
    from mirlo.passes.byoc.view import key_hash
    from mirlo.passes.session import Session

    tuned = f'{{"{key_hash("k")}" = {{width = 4}}}}'
    text = f'module @m attributes {{relax.external = "doubling", relax.tuned = {tuned}}} {{}}'
    with make_context():
        module = ir.Module.parse(text)
        view = read_external(module.operation, Session())
    assert (view.tuned_values("k"), view.tuned_values("other")) == ({"width": 4}, {})
