"""`mirlo explain MODEL --kernel K --after PASS`: the loops of a kernel after a pass over them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node

from mirlo.extend.schedules import ScheduleError
from mirlo.passes.schedule.primitives.tree_passes import TREE_PASSES, tree_pass_summary
from mirlo.tools.cli import main
from mirlo.tools.explain.model import explain_model

AVX2 = "llvm{cpu=haswell}"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Return the file of a product with an activation, and a softmax: two kernels."""
    weight = np.ones((256, 96), np.float32)
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Softmax", "r", "y")]
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x": (F32, [60, 256])}, ["y"], {"w": weight}), str(path))
    return str(path)


def _loops(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the loops that `mirlo explain` prints, as the only stage."""
    assert main(["explain", *arguments]) == 0
    before, title, loops = capsys.readouterr().out.partition(f"--- loops after {arguments[-1]}\n")
    assert title and "---" not in before
    return loops


def _error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["explain", *arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("name", TREE_PASSES)
def test_each_pass(model: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = _loops(capsys, model, "--target", AVX2, "--kernel", "softmax", "--after", name)
    assert "for " in text and "softmax: softmax[" in text, text


def test_loops_of_a_register_tile(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = _loops(capsys, model, "--target", AVX2, "--kernel", "fused_matmul_relu", "--after", "keep-in-registers")
    assert "in a fma tile:" in text and "; then relu: relu[" in text


def test_a_reduction_begins_in_a_block_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A schedule that the user gives is printed as well, and what a pass did to it."""
    path, trace = tmp_path / "sum.onnx", tmp_path / "trace.json"
    onnx.save(make_model([node("ReduceSum", "x", "y", keepdims=0)], {"x": (F32, [8, 32])}, ["y"], opset=11), str(path))
    (kernel,) = [each.name for each in explain_model(str(path), AVX2).kernels]
    trace.write_text(json.dumps({"version": 1, "primitives": []}))
    given = [str(path), "--target", AVX2, "--kernel", kernel, "--schedule", f"{kernel}={trace}", "--after"]
    before, started = (_loops(capsys, *given, name) for name in ("prepare-kernels", "start-reductions"))
    assert "_start: " not in before and "_start: " in started, started


def test_as_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--target", AVX2, "--kernel", "softmax", "--after", "drop-inplace", "--json"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert stage["stage"] == "loops after drop-inplace" and stage["text"].startswith("buffers: ")


def test_threads_of_a_gpu(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Loops are bound to threads on a target that has some."""
    text = _loops(capsys, model, "--target", "nvvm", "--kernel", "softmax", "--after", "join-threads")
    assert "threadIdx.x" in text


def test_an_unknown_pass(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = _error(capsys, model, "--kernel", "softmax", "--after", "drop-inplce")
    assert (
        "there is no pass 'drop-inplce' over loops; did you mean 'drop-inplace'?; there are: prepare-kernels, " in text
    )


def test_without_a_kernel(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "name it with --kernel" in _error(capsys, model, "--after", "drop-inplace")
    with pytest.raises(ScheduleError, match="name it by `kernel`"):
        explain_model(model, after="drop-inplace")
    text = _error(capsys, model, "--kernel", "softmx", "--after", "drop-inplace")
    assert "no kernel 'softmx'; did you mean 'softmax'?; its kernels: fused_matmul_relu, softmax" in text


def test_a_kernel_that_primitives_do_not_schedule(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the rule, the kernels that have loops, and what to do."""
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"version": 1, "primitives": [["apply_rule", "scalar_nest"]]}))
    given = ["--schedule", f"softmax={trace}", "--kernel", "softmax", "--after", "drop-inplace"]
    text = _error(capsys, model, "--target", AVX2, *given)
    assert (
        "kernel 'softmax' has no loops after a pass: it is scheduled by rule 'scalar_nest', not by primitives" in text
    )
    assert "kernels scheduled by primitives: fused_matmul_relu; " in text and "--schedule" in text


def test_the_list_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "loop-passes"]) == 0
    _title, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TREE_PASSES)
    assert all(line.endswith(tree_pass_summary(name)) for line, name in zip(lines, TREE_PASSES, strict=True))
    assert main(["explain", "loop-passes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["loop_passes"]
    assert listed == [{"name": name, "summary": tree_pass_summary(name)} for name in TREE_PASSES]
    assert all(each["summary"].endswith(".") for each in listed)
    assert "--after, --save-trace" in _error(capsys, "loop-passes", "--after", "drop-inplace")
