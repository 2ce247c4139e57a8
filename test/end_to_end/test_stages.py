"""Any stage of a compilation can be saved as text, parsed back, and continued to the same result."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx import import_model
from mirlo.passes.files import write_ir
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.tools.opt import main


def small_model(path: Path) -> None:
    """Write a convolution, constants to fold, and a matmul, with weights in the file."""
    generator = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(generator.standard_normal(shape, np.float32), name)

    nodes = [
        onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["c"], ["r"], name="relu"),
        onnx.helper.make_node("GlobalAveragePool", ["r"], ["g"], name="pool"),
        onnx.helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        onnx.helper.make_node("Add", ["k0", "k1"], ["k"], name="folded"),
        onnx.helper.make_node("MatMul", ["f", "k"], ["m"], name="matmul"),
        onnx.helper.make_node("Softmax", ["m"], ["y"], name="softmax"),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 10])],
        [weight("w", 16, 3, 3, 3), weight("b", 16), weight("k0", 16, 10), weight("k1", 16, 10)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


def result_of(path: Path) -> str:
    """Return the text of a module without the names of its parameter files."""
    return re.sub(r"relax\.params = \[[^\]]*\]", "", path.read_text())


@pytest.mark.sample(0)
def test_every_stage_continues_to_the_same_result(tmp_path: Path) -> None:
    small_model(tmp_path / "model.onnx")
    module, store = import_model(tmp_path / "model.onnx")
    with module.context, ir.Location.unknown():
        write_ir(module, tmp_path / "imported.mlir", Session(store), enable_debug_info=True)
    pipeline = Pipeline.named("llvm")
    steps = [str(step) for step in pipeline.steps]
    whole = tmp_path / "whole.mlir"
    arguments = [f"--pass-pipeline={pipeline}", f"--mlir-print-ir-tree-dir={tmp_path / 'stages'}", f"-o={whole}"]
    assert main([str(tmp_path / "imported.mlir"), *arguments]) == 0
    stages = sorted((tmp_path / "stages").glob("*.mlir"))
    assert len(stages) == len(steps) + 1
    for done, stage in enumerate(stages):
        continued = tmp_path / f"continued-{done}.mlir"
        assert main([str(stage), f"--pass-pipeline={','.join(steps[done:])}", f"-o={continued}"]) == 0
        assert result_of(continued) == result_of(whole), f"continued from {stage.name}"


def test_parameters_that_are_missing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_model(tmp_path / "model.onnx")
    module, store = import_model(tmp_path / "model.onnx")
    with module.context, ir.Location.unknown():
        write_ir(module, tmp_path / "imported.mlir", Session(store))
    (tmp_path / "model.onnx").unlink()
    assert main([str(tmp_path / "imported.mlir")]) == 1
    assert "cannot open 'model.onnx', which the module's attribute 'relax.params' lists" in capsys.readouterr().err
