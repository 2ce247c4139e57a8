"""`mirlo run` of models that work on objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from mirlo.tools.cli import main


def _model(folder: Path, given_sequence: bool = False) -> str:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2])
    s = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    made = helper.make_node("SplitToSequence", ["x"], ["s"], axis=0)
    count = helper.make_node("SequenceLength", ["s"], ["n"])
    joined = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1)
    n = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes, inputs = ([count, joined], [s]) if given_sequence else ([made, count, joined], [x])
    outputs = [n, y] if given_sequence else [n, y, s]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return str(folder / "m.onnx")


def test_values_of_all_kinds_are_printed(tmp_path: Path, capsys) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32).reshape(4, 2))
    flags = ["--input", f"x={tmp_path}/x.npy", "--output-dir", str(tmp_path / "out"), "--repeat", "2"]
    assert main(["run", _model(tmp_path), *flags]) == 0
    out = capsys.readouterr().out
    assert "sequence(f32" in out and "latency: " in out
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), np.arange(8, dtype=np.float32).reshape(1, 8))


def test_random_tensors_go_in(tmp_path: Path, capsys) -> None:
    assert main(["run", _model(tmp_path), "--repeat", "1"]) == 0
    assert "f32[4, 2]" in capsys.readouterr().out


def test_objects_have_no_random_values(tmp_path: Path, capsys) -> None:
    assert main(["run", _model(tmp_path, given_sequence=True)]) == 1
    assert "input 's' is sequence(f32" in capsys.readouterr().err


def test_an_input_that_is_not_there(tmp_path: Path, capsys) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2, np.float32))
    assert main(["run", _model(tmp_path), "--input", f"z={tmp_path}/x.npy"]) == 1
    assert "has no input 'z'; inputs: x: f32[4, 2]" in capsys.readouterr().err
