"""The whole backend suite of ONNX: the list of known failures may only shrink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from collections.abc import Callable
from pathlib import Path

import nearer
import numpy as np
import onnx
import onnx_suite
import pytest
from onnx import TensorProto, helper
from onnx_suite import (
    BROKEN,
    CRASHED,
    EXCUSED,
    HANGS,
    PASSED,
    UNSUPPORTED,
    Outcome,
    known_failures,
    listed_version,
    run_suite,
)

import mirlo
import mirlo.onnx_backend as backend
from mirlo.frontends.onnx import OnnxImportError
from mirlo.runtime.errors import InputError, MirloError

of_listed_version = pytest.mark.skipif(
    listed_version() != onnx.__version__, reason=f"the cases are of onnx {listed_version()}"
)


@of_listed_version
def test_suite(tmp_path: Path, whole: bool) -> None:
    """Run one case in 192, or all."""
    # The cases run in forks of a process that has no threads, which this one may have by now.
    found = tmp_path / "outcomes.json"
    subprocess.run(
        [sys.executable, onnx_suite.__file__, f"--json={found}", f"--step={1 if whole else 192}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    outcomes = {entry["name"]: Outcome(**entry) for entry in json.loads(found.read_text())}
    known = {name: reason for name, reason in known_failures().items() if name in outcomes}
    failures = {name: outcome for name, outcome in outcomes.items() if outcome.status != PASSED}
    new = [f"{name}: {o.status}: {o.message[:300]}" for name, o in failures.items() if name not in known]
    assert not new, "cases that fail:\n" + "\n".join(new)
    passing = sorted(set(known) - set(failures))
    assert not passing, f"listed as failures, but they pass; take them off the list: {' '.join(passing)}"


@of_listed_version
@pytest.mark.parametrize(
    "name", ["test_attention_4d_causal_fp16_expanded", "test_dft_inverse", "test_dft_inverse_opset19"]
)
@pytest.mark.sample(0)
def test_cases_with_inexact_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with f64 where the expected result is inexact; Mirlo's must not be worse."""
    assert nearer.is_nearer(f"{name}_cpu")
    run = mirlo.Executable.run
    monkeypatch.setattr(
        mirlo.Executable, "run", lambda *a, **k: {n: y + y.dtype.type(0.01) for n, y in run(*a, **k).items()}
    )
    assert not nearer.is_nearer(f"{name}_cpu")
    assert not nearer.is_nearer("test_add_cpu")


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["test_cast_FLOAT_to_INT4", "test_castlike_FLOAT16_to_UINT2_expanded"])
def test_casts_beyond_the_range_are_not_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any result is right where the standard defines none, and only there."""
    assert nearer.is_nearer(f"{name}_cpu")
    run = mirlo.Executable.run

    def changed(is_changed: Callable[[np.ndarray], np.ndarray]) -> None:
        def results(model: mirlo.Executable, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            at = is_changed(next(iter(feeds.values())).astype(np.float32))
            return {
                name: np.where(at, 1 - y.astype(np.int8), y.astype(np.int8)) for name, y in run(model, feeds).items()
            }

        monkeypatch.setattr(mirlo.Executable, "run", results)

    changed(lambda x: x == x.max())  # 15 or 3: in the range of unsigned types only
    assert nearer.is_nearer(f"{name}_cpu") == ("_INT" in name)
    changed(lambda x: x == 1)
    assert not nearer.is_nearer(f"{name}_cpu")


def test_known_failures_are_refusals() -> None:
    """Whatever does not pass is refused with a reason: no wrong answers, no crashes, no tracebacks."""
    reasons = set(known_failures().values())
    assert not reasons & {BROKEN, CRASHED, HANGS, "wrong"}
    symbolic = known_failures(onnx_suite.KNOWN_FAILURES.with_name("symbolic_known_failures.txt"))
    assert {reason for reason, _ in EXCUSED} <= reasons | set(symbolic.values())


def add(shape: list[int | str]) -> onnx.ModelProto:
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xyz")
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "sum", [x, y], [z])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


ONE = np.ones(3, np.float32)


def test_inputs_by_position_and_by_name() -> None:
    prepared = backend.prepare(add([3]))
    for inputs in ([ONE, ONE], {"y": ONE, "x": ONE}):
        np.testing.assert_array_equal(prepared.run(inputs)[0], 2 * ONE)
    np.testing.assert_array_equal(prepared.run([ONE, ONE]).z, 2 * ONE)
    np.testing.assert_array_equal(backend.run_model(add([3]), [ONE, ONE])[0], 2 * ONE)


def test_a_model_with_symbolic_dims_runs_for_each_shape() -> None:
    prepared = backend.prepare(add(["n"]))
    for n in (3, 5, 3):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(prepared.run([x, x])[0], 2 * x)


def test_one_node() -> None:
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=0)
    np.testing.assert_array_equal(backend.run_node(node, [ONE])[0], np.ones(6, np.float32))
    old = helper.make_node("Softmax", ["x"], ["y"])
    x = np.ones((2, 2, 2), np.float32)
    np.testing.assert_allclose(backend.run_node(old, [x], opset_version=11)[0], x / 4)
    np.testing.assert_allclose(backend.run_node(old, [x], outputs_info=[(np.float32, (2, 2, 2))])[0], x / 2)


def test_devices() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA") and not backend.supports_device("abacus")
    with pytest.raises(MirloError, match="device 'CUDA' is not supported"):
        backend.prepare(add([3]), "CUDA")


def test_errors_name_what_is_wrong() -> None:
    prepared = backend.prepare(add([3]))
    with pytest.raises(InputError, match=r"takes 2 inputs \(x, y\), got 1"):
        prepared.run([ONE])
    with pytest.raises(InputError, match="missing: y, unknown: w"):
        prepared.run({"x": ONE, "w": ONE})
    with pytest.raises(TypeError, match="unknown option 'tolerance'"):
        backend.prepare(add([3]), tolerance=1)
    with pytest.raises(OnnxImportError, match="Softmx"):
        backend.run_node(helper.make_node("Softmx", ["x"], ["y"]), [ONE])


@pytest.mark.sample(0)
def test_a_crash_costs_one_case() -> None:
    class Cases(unittest.TestCase):
        def test_dies(self) -> None:
            os.abort()

        def test_refuses(self) -> None:
            raise MirloError("no")

        def test_works(self) -> None:
            pass

    suite = {name: Cases(name) for name in ("test_dies", "test_refuses", "test_works")}
    found = {outcome.name: outcome.status for outcome in run_suite(suite, list(suite), processes=1)}
    assert found == {"test_dies": CRASHED, "test_refuses": UNSUPPORTED, "test_works": PASSED}
