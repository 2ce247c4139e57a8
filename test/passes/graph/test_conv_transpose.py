"""Transposed convolutions as convolutions: against ONNX's reference, in all kinds of strides, crops and windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
    ((1, 8, 5, 6), (2, 2), {"strides": [2, 2]}, (10, 12)),
    ((2, 8, 5, 6), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, (10, 12)),
    ((1, 8, 5, 6), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, (10, 12)),
    ((1, 3, 7), (5,), {"strides": [3], "pads": [2, 1]}, (20,)),
    ((1, 8, 5, 6), (3, 3), {"strides": [1, 1], "pads": [1, 1, 1, 1]}, (5, 6)),
    ((1, 8, 5, 6), (2, 3), {"strides": [3, 2], "pads": [0, 1, 1, 0]}, (13, 12)),
    ((1, 4, 3, 4, 3), (2, 2, 2), {"strides": [2, 2, 2]}, (6, 8, 6)),
    ((1, 8, 5, 6), (3, 3), {"strides": [2, 1], "pads": [3, 0, 0, 1]}, (8, 7)),
]


@pytest.mark.parametrize("known", ["all", "sizes", "channels"])
@pytest.mark.parametrize(("shape", "window", "attributes", "out"), CASES)
def test_against_the_reference(
    shape: tuple[int, ...], window: tuple[int, ...], attributes: dict[str, Any], out: tuple[int, ...], known: str
) -> None:
    """All dims are numbers, or the batch is none, or the sizes neither."""
    rng = np.random.default_rng(0)
    channels = 4
    arrays = {
        "w": rng.standard_normal((shape[1], channels, *window), dtype=np.float32),
        "b": rng.standard_normal(channels, dtype=np.float32),
    }
    batch = shape[0] if known == "all" else "batch"
    sizes = [f"size{i}" for i in range(len(window))] if known == "channels" else shape[2:]
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], kernel_shape=list(window), **attributes)],
        "transposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, shape[1], *sizes])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (shape[0], channels, *out) if known == "all" else None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    executable = mirlo.compile(model)
    covers_all = all(size >= stride for size, stride in zip(window, attributes["strides"], strict=True))
    if known != "channels" and covers_all:  # the rule declines where a size may be 0, or elements have no tap
        assert not any(kernel.symbol.startswith("phases") for kernel in executable.artifact.kernels)
    calls = {
        "all": [shape],
        "sizes": [shape, (3, *shape[1:])],
        "channels": [shape, (3, *shape[1:-1], 2), (1, shape[1], *[9] * len(window))],
    }
    for called in calls[known]:
        x = rng.standard_normal(called, dtype=np.float32)
        (want,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(executable(x), want, rtol=1e-4, atol=1e-4)
