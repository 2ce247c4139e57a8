"""Sizes of dynamic dims on the command line and in Python, and errors without dynamic dims."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.runtime.errors import InputError
from mirlo.tools.cli import main

FLOAT = TensorProto.FLOAT


def _model(nodes: list[onnx.NodeProto], **inputs: list[int | str]) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dims")
    products = [
        helper.make_node("MatMul", ["a", "b"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
        helper.make_node("MatMul", ["s", "b"], ["y"]),
    ]
    onnx.save(_model(products, a=["batch", "seq", "seq"], b=["batch", "seq", "seq"]), made / "products.onnx")
    pool = [helper.make_node("MaxPool", ["image"], ["y"], kernel_shape=[40, 40])]
    onnx.save(_model(pool, image=["batch", 2, "height", "width"]), made / "pool.onnx")
    cache = [helper.make_node("Concat", ["past", "new"], ["all"], axis=1), helper.make_node("Add", ["all", "m"], ["y"])]
    onnx.save(_model(cache, past=["n", "past"], new=["n", 1], m=["n", "past + 1"]), made / "cache.onnx")
    return made


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    found = capsys.readouterr()
    assert code == 0, found.err
    return found.out


@pytest.mark.sample(0)
def test_run_takes_small_sizes_and_says_which(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, "run", folder / "products.onnx", "--repeat", 1)
    line = "sizes of dynamic dims: batch=1, seq=8, which were not given; others: --dim batch=N --dim seq=N"
    assert line in out and "f32[1, 8, 8]" in out


def test_run_tries_larger_sizes_where_the_model_needs_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, "run", folder / "pool.onnx", "--repeat", 1)
    assert "batch=1, height=64, width=64, which were not given" in out and "f32[1, 2, 25, 25]" in out


def test_dims_that_are_computed_follow(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, "run", folder / "cache.onnx", "--repeat", 1)
    assert "n=1, past=8" in out and "f32[1, 9]" in out
    out = _run(capsys, "run", folder / "cache.onnx", "--repeat", 1, "--dim", "past=4")
    assert "n=1, which were not given" in out and "f32[1, 5]" in out


@pytest.mark.sample(0)
def test_sizes_by_dim_on_the_command_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, sizes = folder / "products.onnx", ("--dim", "batch=2", "--dim", "seq=5")
    assert "f32[2, 5, 5]" in _run(capsys, "run", path, "--repeat", 1, *sizes)
    assert "f32[2, 5, 5]" in _run(capsys, "info", path, *sizes)
    assert "tensor<2x5x5xf32>" in _run(capsys, "import", path, *sizes)
    assert _run(capsys, "check", path, *sizes)
    assert "every output is as reference computes it" in _run(capsys, "bisect", path, *sizes)
    assert _run(capsys, "explain", path, *sizes)
    _run(capsys, "compile", path, "-o", tmp_path / "fixed.mirlo", *sizes)
    assert "f32[2, 5, 5]" in _run(capsys, "info", tmp_path / "fixed.mirlo")
    _run(capsys, "compile", path, "-o", tmp_path / "any.mirlo")
    assert "f32[2, 5, 5]" in _run(capsys, "run", tmp_path / "any.mirlo", "--repeat", 1, *sizes)


def test_memory_of_a_call_is_told_for_some_sizes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = _run(capsys, "compile", folder / "products.onnx", "-o", tmp_path / "any.mirlo", "--report")
    for text in (out, _run(capsys, "info", tmp_path / "any.mirlo")):
        assert "memory of a call: by the sizes of its inputs" in text
        assert not re.search(r"[ =:]-\d", text)  # a size that is not known
        # Two buffers of 16 KiB, columns packed by the vectors of this processor, and bytes to read after buffers.
        match = re.search(r"^  batch = 1, seq = 64: (\d+\.\d) KiB$", text, re.MULTILINE)
        assert match is not None and 32 < float(match[1]) < 50
    assert "arena by the sizes of a call" in str(mirlo.load(tmp_path / "any.mirlo").memory)


def test_sizes_by_dim_in_python(folder: Path) -> None:
    path = folder / "products.onnx"
    fixed = mirlo.compile(path, dims={"seq": 5})
    assert [str(spec) for spec in fixed.inputs] == ["a: f32[batch, 5, 5]", "b: f32[batch, 5, 5]"]
    assert mirlo.compile(path, shapes={"a": [3, "n", "n"]}, dims={"seq": 5}).inputs[1].shape == (3, 5, 5)
    assert [spec.shape for spec in mirlo.compile(path, dims={"seq": 0}).inputs] == [("batch", 0, 0)] * 2
    assert fixed.profile(repeats=1, dims={"batch": 2}).rows
    with pytest.raises(InputError, match=r"give the size of its dim 'batch', dims=\{'batch': ...\}"):
        fixed.profile(repeats=1)
    for dims, text in (
        ({"sequence": 5}, "it has no dim 'sequence', for which a size is given; dims of its inputs: batch, seq"),
        ({"seq": "n"}, "the size of the dim 'seq' must be a number from 0, found 'n'"),
        ({"seq": -1}, "the size of the dim 'seq' must be a number from 0, found -1"),
    ):
        with pytest.raises(OnnxImportError, match=text):
            mirlo.compile(path, dims=dims)  # type: ignore[arg-type]
    x = np.ones((3, 5, 5), np.float32)
    np.testing.assert_allclose(fixed(x, x), x, rtol=1e-6)
