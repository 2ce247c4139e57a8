"""Non-maximum suppression of random boxes, compared with ONNX Runtime: equal scores, limits, thresholds, overlaps."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo


@pytest.mark.parametrize("seed", range(6))
def test_random_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["boxes", "scores", "most", "overlap"] + (["least"] if seed % 3 else [])
    node = helper.make_node("NonMaxSuppression", names, ["picked"], center_point_box=seed % 2)
    kinds = {"boxes": ["b", "n", 4], "scores": ["b", "c", "n"], "most": [1], "overlap": [1], "least": [1]}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if name == "most" else TensorProto.FLOAT, kinds[name])
        for name in names
    ]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("picked", TensorProto.INT64, ["k", 3])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    compiled = mirlo.compile(model)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    for images, classes, count in ((1, 1, 0), (1, 1, 1), (1, 2, 7), (2, 3, 60), (1, 1, 300), (1, 2, 5000)):
        corners = rng.random((images, count, 2), np.float32) * 20
        sizes = rng.random((images, count, 2), np.float32) * 8
        given = {
            "boxes": np.concatenate([corners, corners * (1 - seed % 2) + sizes], 2),
            "scores": rng.integers(0, 9, (images, classes, count)).astype(np.float32) / 8,  # many are equal
            "most": rng.integers(0, 40, 1),
            "overlap": rng.random(1, np.float32),
            "least": np.float32([0.3]),
        }
        feeds = {name: given[name] for name in names}
        np.testing.assert_array_equal(compiled(**feeds), reference.run(None, feeds)[0])
