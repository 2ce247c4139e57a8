"""Causal attention over a cache: the new tokens see all of it, and each what comes before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mirlo

PAST, HEADS, SHARED, SIZE = 5, 4, 2, 8
KINDS = {"bool": (TensorProto.BOOL, bool), "float": (TensorProto.FLOAT, np.float32)}


@pytest.mark.parametrize("mask", ["", "bool", "float"])
@pytest.mark.parametrize("new", [1, 3])
def test_causal_with_past(new: int, mask: str, tmp_path: Path) -> None:
    import onnxruntime

    rng = np.random.default_rng(0)
    shapes = {
        "q": (1, HEADS, new, SIZE), "k": (1, SHARED, new, SIZE), "v": (1, SHARED, new, SIZE),
        "pk": (1, SHARED, PAST, SIZE), "pv": (1, SHARED, PAST, SIZE),
    }  # fmt: skip
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    if mask:
        kind, numbers = KINDS[mask]
        seen = np.arange(PAST + new) != 2
        inputs["m"] = np.broadcast_to(seen if mask == "bool" else np.where(seen, 0.5, -2), (new, PAST + new))
        inputs["m"] = inputs["m"].astype(numbers)
        values.append(helper.make_tensor_value_info("m", kind, (new, PAST + new)))
    names = ["q", "k", "v", "m" if mask else "", "pk", "pv"]
    node = helper.make_node("Attention", names, ["y", "nk", "nv"], is_causal=1)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "nk", "nv")]
    graph = helper.make_graph([node], "g", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    compiled = mirlo.compile(path)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for found, wanted in zip(compiled.run(inputs).values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert any("attention" in kernel.symbol for kernel in compiled.artifact.kernels), "it is one kernel"


@pytest.mark.parametrize("new", [1, "new"])
def test_lengths_of_run_time(new: int | str, tmp_path: Path) -> None:
    """A cache of any length, and any number of new tokens: one attention, from one compilation."""
    import onnxruntime

    shapes = {
        "q": ("b", HEADS, new, SIZE), "k": ("b", SHARED, new, SIZE), "v": ("b", SHARED, new, SIZE),
        "pk": ("b", SHARED, "past", SIZE), "pv": ("b", SHARED, "past", SIZE),
    }  # fmt: skip
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], is_causal=1)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "nk", "nv")]
    model = helper.make_model(
        helper.make_graph([node], "g", values, results), opset_imports=[helper.make_opsetid("", 23)], ir_version=10
    )
    compiled = mirlo.compile(model)
    assert any("attention" in kernel.symbol for kernel in compiled.artifact.kernels)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(0)
    for sizes in ({"b": 1, "new": 1, "past": 0}, {"b": 2, "new": 3, "past": 5}, {"b": 1, "new": 40, "past": 100}):
        inputs = {
            name: rng.standard_normal([sizes.get(str(dim), dim) for dim in shape]).astype(np.float32)  # type: ignore[misc]
            for name, shape in shapes.items()
        }
        for found, wanted in zip(compiled.run(inputs).values(), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


def test_of_microsoft(tmp_path: Path) -> None:
    import onnxruntime

    rng = np.random.default_rng(0)
    shapes = {"x": (2, 3, 8), "w": (8, 24), "b": (24,), "p": (2, 2, 2, 5, 4)}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node(
        "Attention", ["x", "w", "b", "", "p"], ["y", "n"], domain="com.microsoft", num_heads=2, unidirectional=1
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "n")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", values, results), opset_imports=opsets, ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for found, wanted in zip(mirlo.compile(path).run(inputs).values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
