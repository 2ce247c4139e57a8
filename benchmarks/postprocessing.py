"""Postprocessing beside ONNX Runtime, one thread: boxes, sampling of tokens, selection by a mask.

Sizes are dynamic or data-dependent. Times are thread CPU time, the least of calls that alternate in one process.

python -m benchmarks.postprocessing
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CALLS = 40
"""Calls of each, of which the least time counts."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model, and inputs of several sizes."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Arrays]


def _model(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, list[Any]], constants: Arrays, output: str, kind: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "postprocessing",
        [helper.make_tensor_value_info(name, FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(output, kind, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def suppression() -> Case:
    """Return non-maximum suppression of boxes, and the gather of those that stay."""
    constants = {
        "most": np.int64([100]), "overlap": np.float32([0.5]), "least": np.float32([0.05]), "zero": np.int64([0]),
        "column": np.int64([2]), "one": np.int64([1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["picked"]),
        helper.make_node("Gather", ["picked", "column"], ["indices"], axis=1),
        helper.make_node("Squeeze", ["indices", "one"], ["flat"]),
        helper.make_node("Squeeze", ["boxes", "zero"], ["list"]),
        helper.make_node("Gather", ["list", "flat"], ["y"], axis=0),
    ]
    model = _model(nodes, {"boxes": [1, "n", 4], "scores": [1, "classes", "n"]}, constants, "y", FLOAT)

    def arrays(boxes: int, classes: int) -> Arrays:
        rng = np.random.default_rng(boxes)
        corners = rng.random((1, boxes, 2), np.float32) * 600
        ends = corners + 5 + rng.random((1, boxes, 2), np.float32) * 100
        return {"boxes": np.concatenate([corners, ends], 2), "scores": rng.random((1, classes, boxes), np.float32)}

    return Case("NMS", model, {f"{n} boxes, {c} classes": arrays(n, c) for n, c in ((300, 1), (1000, 1), (2000, 20))})


def top_p() -> Case:
    """Return top-p sampling without the draw: probabilities of the likeliest tokens, others hidden, as they were."""
    constants = {"k": np.int64([50]), "axis": np.int64(1), "p": np.float32(0.9), "hidden": np.float32(-1e30)}
    nodes = [
        helper.make_node("TopK", ["logits", "k"], ["best", "tokens"], axis=1),
        helper.make_node("Softmax", ["best"], ["shares"], axis=1),
        helper.make_node("CumSum", ["shares", "axis"], ["total"], exclusive=1),
        helper.make_node("Less", ["total", "p"], ["kept"]),
        helper.make_node("Where", ["kept", "best", "hidden"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["final"], axis=1),
        helper.make_node("Mul", ["logits", "zero"], ["zeros"]),
        helper.make_node("ScatterElements", ["zeros", "tokens", "final"], ["y"], axis=1),
    ]
    model = _model(nodes, {"logits": ["batch", "vocabulary"]}, {**constants, "zero": np.float32(0)}, "y", FLOAT)
    rng = np.random.default_rng(0)
    sizes = ((1, 32000), (8, 32000), (1, 128256))
    return Case("top-p", model, {f"{b} x {v}": {"logits": rng.standard_normal((b, v), np.float32)} for b, v in sizes})


def mask_and_sort() -> Case:
    """Return the selection of scores above a threshold, sorted."""
    constants = {"least": np.float32(0.8)}
    nodes = [
        helper.make_node("Greater", ["scores", "least"], ["kept"]),
        helper.make_node("Compress", ["scores", "kept"], ["chosen"], axis=0),
        helper.make_node("Shape", ["chosen"], ["count"]),
        helper.make_node("TopK", ["chosen", "count"], ["y", "order"], axis=0),
    ]
    model = _model(nodes, {"scores": ["n"]}, constants, "y", FLOAT)
    rng = np.random.default_rng(0)
    return Case("mask and sort", model, {f"{n}": {"scores": rng.random(n, np.float32)} for n in (300, 8400, 100_000)})


def regions() -> Case:
    """Return the largest pixels of the bins of regions of an image."""
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[7, 7], spatial_scale=1 / 16)
    model = _model([node], {"x": ["n", 256, "h", "w"], "rois": ["regions", 5]}, {}, "y", FLOAT)
    rng = np.random.default_rng(0)
    inputs = {}
    for height, width, count in ((38, 50, 100), (14, 14, 8)):
        corners = np.sort(rng.uniform(0, 16, (count, 2, 2)), 1) * (width, height)
        rois = np.concatenate([np.zeros((count, 1)), corners.reshape(count, 4)], 1).astype(np.float32)
        x = rng.standard_normal((1, 256, height, width), np.float32)
        inputs[f"{count} of {height} x {width}"] = {"x": x, "rois": rois}
    return Case("maxima of regions", model, inputs)


def alternating(functions: list[Callable[[], Any]]) -> list[float]:
    """Return the least thread CPU time of each in microseconds."""
    best = [float("inf")] * len(functions)
    for _ in range(CALLS):
        for i, function in enumerate(functions):
            start = time.thread_time()
            function()
            best[i] = min(best[i], time.thread_time() - start)
    return [1e6 * seconds for seconds in best]


def main() -> None:
    """Print a line per model and size."""
    import mirlo
    from benchmarks.turns import onnxruntime_session

    print(f"{'model':18} {'sizes':24} Mirlo us  ONNX Runtime us  ratio")
    for case in (suppression(), top_p(), mask_and_sort(), regions()):
        compiled = mirlo.compile(case.model)
        session = onnxruntime_session(case.model.SerializeToString(), threads=1)
        for sizes, arrays in case.inputs.items():
            np.testing.assert_allclose(compiled(**arrays), session.run(None, arrays)[0], rtol=1e-4, atol=1e-6)
            calls = [lambda: compiled(**arrays), lambda: session.run(None, arrays)]  # noqa: B023
            own, other = alternating(calls)
            print(f"{case.name:18} {sizes:24} {own:8.1f} {other:16.1f} {own / other:6.2f}", flush=True)


if __name__ == "__main__":
    main()
