"""Mirlo's tools on this target: check-target, bisect, explain and partition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from mirlo_tensix import simulator
from mirlo_tensix.generator import Tensix
from onnx import TensorProto, helper, numpy_helper

from mirlo.extend.command import main

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")


def model_file(path: Path) -> str:
    """Write a dense layer with a bias and ReLU, and a softmax."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((40, 50)) / 6, "b": rng.standard_normal(50)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="up"),
        helper.make_node("Add", ["h", "b"], ["hb"], name="bias"),
        helper.make_node("Relu", ["hb"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax"),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (20, width))] for name, width in (("x", 40), ("y", 50))
    ]
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "layers", *ends, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return str(path)


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize(
    "pattern", ["relu", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("move", "matmul"))]
)
def test_bits_of_a_pattern_pass_check_target(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-target", "tensix,llvm", "--operator", f"tensix.{pattern}"]) == 0
    printed = capsys.readouterr().out
    assert f"tensix.{pattern}  ok" in printed and "0 wrong, 0 failed" in printed


def test_commands_check_a_target_alone_by_its_patterns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mirlo.tools.conformance.check.check_patterns", lambda *_: ())
    assert main(["check-target", "tensix"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]  # with the instructions of target llvm
    assert last.startswith("tensix,llvm: ") and last.endswith("0 wrong, 0 failed")


@pytest.mark.nightly
@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_all_patterns_pass_check_target(capsys: pytest.CaptureFixture[str]) -> None:
    all_patterns_pass_check_target(capsys)


@needs_simulator
@pytest.mark.nightly
def test_every_pattern_passes_check_target_on_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    all_patterns_pass_check_target(capsys)


def all_patterns_pass_check_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-target", "tensix"]) == 0
    printed = capsys.readouterr().out
    assert "0 wrong, 0 failed" in printed
    rows = [line.split()[:2] for line in printed.splitlines() if line.startswith("tensix.")]
    assert rows == [[f"tensix.{name}", "ok"] for name, *_ in Tensix().patterns()]


@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_a_model_pass_bisect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model_file(tmp_path / "layers.onnx")
    assert main(["bisect", path, "--target", "tensix,llvm", "--against", "reference", "-o", str(tmp_path / "b")]) == 0
    assert "every output is as reference computes it" in capsys.readouterr().out
    assert main(["bisect", path, "--target", "tensix{phases=1},llvm", "--rtol", "1e-5", "-o", str(tmp_path / "b")]) == 1
    assert "the code generator departs: tensix." in capsys.readouterr().out


def test_commands_report_what_the_core_computes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model_file(tmp_path / "layers.onnx")
    assert main(["explain", path, "--target", "tensix,llvm"]) == 0
    assert "taken by a code generator, as dense" in capsys.readouterr().out
    assert main(["partition", path, "--targets", "tensix,llvm"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("tensix  "))
    assert "100.00 %" in row
