"""MaxRoiPool as in ONNX Runtime: bins that overlap, are narrower than a pixel, or are outside of the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError


def model_of(image: list[Any], rois: list[Any], kind: int = TensorProto.FLOAT, **attributes: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], name="pool", **attributes)],
        "regions",
        [helper.make_tensor_value_info("x", kind, image), helper.make_tensor_value_info("rois", kind, rois)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def inputs_of(height: int, width: int, count: int, seed: int) -> dict[str, np.ndarray]:
    """Return images and regions inside, around and outside of them; bounds at halves are rounded."""
    random = np.random.default_rng(seed)
    first = random.integers(-8, 2 * max(height, width), (count, 2)) / 2
    bounds = np.concatenate([first, first + random.integers(-4, 40, (count, 2)) / 2], 1)
    rois = np.concatenate([random.integers(0, 2, (count, 1)), bounds], 1)
    return {"x": random.standard_normal((2, 3, height, width)).astype(np.float32), "rois": rois.astype(np.float32)}


@pytest.mark.parametrize(("pooled", "scale"), [((2, 3), 1.0), ((1, 1), 0.5), ((5, 4), 0.3)])
def test_regions_of_images_of_any_size(pooled: tuple[int, int], scale: float) -> None:
    attributes = {"pooled_shape": pooled, "spatial_scale": scale}
    model = model_of(["n", 3, "h", "w"], ["r", 5], **attributes)
    oracle, compiled = onnxruntime.InferenceSession(model.SerializeToString()), mirlo.compile(model)
    for i, (height, width, count) in enumerate([(9, 7, 30), (1, 1, 6), (3, 12, 30), (4, 4, 0)]):
        inputs = inputs_of(height, width, count, i)
        np.testing.assert_array_equal(compiled.run(inputs)["y"], oracle.run(None, inputs)[0])
    inputs = inputs_of(6, 5, 20, 9)
    static = mirlo.compile(model, shapes={name: list(array.shape) for name, array in inputs.items()})
    np.testing.assert_array_equal(static.run(inputs)["y"], oracle.run(None, inputs)[0])


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_element_types(kind: int) -> None:
    """ONNX Runtime has float32 for certain: numbers of float16 are the same there."""
    attributes = {"pooled_shape": (3, 2), "spatial_scale": 0.5}
    inputs = {name: array.astype(np.float16) for name, array in inputs_of(7, 8, 12, 3).items()}
    wanted = onnxruntime.InferenceSession(model_of([2, 3, 7, 8], [12, 5], **attributes).SerializeToString())
    expected = wanted.run(None, {name: array.astype(np.float32) for name, array in inputs.items()})[0]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    found = mirlo.compile(model_of([2, 3, 7, 8], [12, 5], kind, **attributes)).run(
        {name: array.astype(dtype) for name, array in inputs.items()}
    )["y"]
    np.testing.assert_array_equal(found, expected.astype(dtype))


def test_regions_without_bounds() -> None:
    """No pixel is in a bin whose bounds are no numbers; no memory outside of the image is read."""
    compiled = mirlo.compile(model_of([1, 1, 4, 4], [2, 5], pooled_shape=(1, 2)))
    rois = np.float32([[0, np.nan, 0, 3, 3], [0, -1e30, 0, -1e29, 3]])
    assert not compiled.run({"x": np.ones((1, 1, 4, 4), np.float32), "rois": rois})["y"].any()


@pytest.mark.parametrize(
    ("rois", "pooled", "text"),
    [
        ([3, 4], (2, 2), r"regions \[R, 5\], got f32\[1, 1, 4, 4\] and f32\[3, 4\]"),
        ([3, 5], (2, 0), r"'pooled_shape' must be two numbers of at least 1, got \[2, 0\]"),
    ],
)
def test_errors(rois: list[int], pooled: tuple[int, int], text: str) -> None:
    with pytest.raises(OnnxImportError, match=text):
        mirlo.compile(model_of([1, 1, 4, 4], rois, pooled_shape=pooled))
