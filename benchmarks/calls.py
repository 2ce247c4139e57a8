"""The overhead of a call: models of almost no work, of numbers only and with dynamic dims.

    python -m benchmarks.calls

Microseconds of a call, the least of some rounds, beside ONNX Runtime's `run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

ROUNDS, CALLS = 15, 300


def sum_of(inputs: int) -> onnx.ModelProto:
    """Return a sum of inputs of [batch, seq], and a softmax of it."""
    names = [f"x{i}" for i in range(inputs)]
    nodes = [helper.make_node("Sum", names, ["y"]), helper.make_node("Softmax", ["y"], ["z"])]
    return _model(nodes, names, ["y", "z"])


def nonzero() -> onnx.ModelProto:
    """Return a model whose output size is known when its data is."""
    return _model([helper.make_node("NonZero", ["x0"], ["y"])], ["x0"], ["y"])


def _model(nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    input_infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "seq"]) for name in inputs]
    values = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs]
    graph = helper.make_graph(nodes, "call", input_infos, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def microseconds(call: Callable[[], Any]) -> float:
    """Return the microseconds of a call: the least of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best * 1e6


def main() -> None:
    import onnxruntime

    import mirlo

    models = {"1 input": sum_of(1), "4 inputs": sum_of(4), "13 inputs": sum_of(13), "NonZero": nonzero()}
    print("model          by position  by name    run  fixed sizes  ONNX Runtime   (microseconds)")
    for name, model in models.items():
        feeds = {value.name: np.ones((2, 5), np.float32) for value in model.graph.input}
        arrays = list(feeds.values())
        executable = mirlo.compile(model)
        fixed = mirlo.compile(model, shapes={key: [2, 5] for key in feeds})
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        calls = (
            lambda: executable(*arrays),  # noqa: B023
            lambda: executable(**feeds),  # noqa: B023
            lambda: executable.run(feeds),  # noqa: B023
            lambda: fixed(*arrays),  # noqa: B023
            lambda: session.run(None, feeds),  # noqa: B023
        )
        times = [microseconds(call) for call in calls]
        print(f"{name:14s} {times[0]:11.1f} {times[1]:8.1f} {times[2]:6.1f} {times[3]:12.1f} {times[4]:13.1f}")


if __name__ == "__main__":
    main()
