"""The profile that a session writes: events as ONNX Runtime's, one for each kernel and run."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo


def _model() -> bytes:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in ("x", "y")]
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], "first"),
        helper.make_node("CumSum", ["s", "axis"], ["c"], "second"),
        helper.make_node("Softmax", ["c"], ["y"], "third"),
    ]
    axis = onnx.numpy_helper.from_array(np.array(1), "axis")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [axis])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )


def _serialized(graph: onnx.GraphProto) -> bytes:
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def _words() -> bytes:
    """Return a model of strings, which is a program of host functions."""
    node = helper.make_node("StringNormalizer", ["x"], ["y"], "upper", case_change_action="UPPER")
    values = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )


def _profile(ort: Any, model: bytes, feed: dict[str, Any], folder: Path, runs: int) -> list[dict[str, Any]]:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / ort.__name__)
    session = ort.InferenceSession(model, options)
    for _ in range(runs):
        session.run(None, feed)
    path = session.end_profiling()
    assert Path(path).name.startswith(ort.__name__ + "_") and session.end_profiling() == ""
    return list(json.loads(Path(path).read_text()))


@pytest.mark.parametrize("runs", [1, 3])
def test_a_profile_has_the_fields_of_onnx_runtime(tmp_path: Path, runs: int) -> None:
    feed = {"x": np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)}
    found, expected = (_profile(ort, _model(), feed, tmp_path, runs) for ort in (mirlo, onnxruntime))
    assert {key for event in found for key in event} == {key for event in expected for key in event}
    kernels = [event for event in found if event["cat"] == "Node"]
    assert len(kernels) % runs == 0 and {"op_name", "provider", "node_index"} <= kernels[0]["args"].keys()
    assert {name for event in kernels for name in ("first", "second", "third") if name in event["args"]["nodes"]} == {
        "first", "second", "third",
    }  # fmt: skip
    calls = [event for event in found if event["name"] == "model_run"]
    assert len(calls) == len([event for event in expected if event["name"] == "model_run"]) == runs
    for event in kernels:
        end = event["ts"] + event["dur"]
        assert any(call["ts"] - 100 <= event["ts"] and end <= call["ts"] + call["dur"] + 100 for call in calls)


def test_a_program_has_a_profile_of_its_steps(tmp_path: Path) -> None:
    found = _profile(mirlo, _words(), {"x": np.array(["a", "b"])}, tmp_path, 2)
    assert [event["cat"] for event in found] == ["Session", "Node", "Session", "Node", "Session"]


@pytest.mark.sample(0)
def test_a_session_that_ends_writes_its_profile(tmp_path: Path) -> None:
    options = mirlo.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "kept")
    session = mirlo.InferenceSession(_model(), options)
    session.run(None, {"x": np.ones((2, 64), np.float32)})
    assert session.get_profiling_start_time_ns() > 0 and not list(tmp_path.iterdir())
    del session
    gc.collect()
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())[-1]["name"] == "model_run"
