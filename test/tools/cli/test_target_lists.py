"""Every command takes what `mirlo.compile` takes as a target: lists, with options, by one flag."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from mirlo.extend.codegen import CodeGenerator, is_op, pattern_table
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import legalize
from mirlo.extend.target import Target, register_target
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main
from mirlo.tools.cli.arguments import make_parser


@dataclass(frozen=True)
class Products(CodeGenerator):
    """Products, which Mirlo compiles."""

    name = "matmuls"
    pipeline = "legalize"

    def patterns(self):
        return []


TARGETS = ("onnx{provider=cpu},llvm", "llvm{cpu=native}")
COMMANDS = {
    "compile": ["-o", "out.mirlo"], "run": ["--repeat", "1"], "explain": [], "check": [], "bisect": [],
    "tune": ["--seconds", "1", "--database", "tuned.json"], "partition": [],
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="mm"), helper.make_node("Relu", ["a"], ["y"], name="r")]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [4, 8]), ("y", [4, 6])))
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), "model.onnx")
    return "model.onnx"


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_models(command: str, target: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = main([command, model, "--target", target, *COMMANDS[command]])
    if command == "partition" and "," not in target:
        assert "there is nothing to divide" in capsys.readouterr().err
    else:
        assert found == 0, capsys.readouterr().err


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", [*TARGETS, "onnx"])
def test_check_target(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a code generator does not take is computed by the usual host."""
    assert main(["check-target", "--target", target, "--operator", "relax.relu"]) == 0
    assert "0 declined, 0 wrong, 0 failed" in capsys.readouterr().out
    assert main(["check-target", target, "--operator", "relax.relu"]) == 0


def test_check_target_needs_one() -> None:
    assert main(["check-target"]) == 1
    assert main(["check-target", "llvm", "--target", "llvm"]) == 1


def test_fuzz(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "graphs", "--count", "1", "--target", TARGETS[0]]) == 0, capsys.readouterr().err


def test_bench_takes_them() -> None:
    assert make_parser().parse_args(["bench", "m.onnx", "--targets", TARGETS[0]]).target == TARGETS[0]


def test_explain_names_the_pattern(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--target", TARGETS[0]]) == 0
    assert "taken by a code generator, as " in capsys.readouterr().out


@pytest.mark.sample(0)
def test_bisect_of_a_list(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong rule of the host is found next to a code generator, and the replay command is quoted."""
    target = "matmuls,llvm{cpu=native}"
    with temporary_registrations(__name__):

        @legalize("relax.relu", target="llvm", priority=1000, name="wrong_relu")
        def wrong(op, b):
            return elementwise(op, b, [op.x], lambda x: x * 2.0)

        @pattern_table("matmuls")
        def patterns():
            return [("matmul", is_op("relax.matmul"))]

        register_target(Target("matmuls", "products of a test", codegen=Products))
        assert main(["bisect", model, "--target", target, "-o", "found"]) == 1
    report = json.loads((tmp_path / "found" / "report.json").read_text())
    assert f"--target '{target}'" in report["replay"]
    assert any("wrong_relu" in rule for rule in report["rules"])
