"""Operators that read what is computed from constants: `python -m benchmarks.kernels.constant_weights [--rows M]`.

Mirlo and ONNX Runtime take turns, each with ten calls in a row. The table shows medians in microseconds, their ratio,
and the largest difference by the largest result: ONNX Runtime quantizes the rows of products with DequantizeLinear.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.turns import onnxruntime_session, relative_error

K, N, CHANNELS = 1024, 4096, 512
ROUNDS, CALLS = 9, 10
MATMUL = ("MatMul", "x w", "y", {})


def models(rows: int) -> dict[str, Any]:
    """Return models by the form of their weights."""
    random = np.random.default_rng(0)
    codes = random.integers(-127, 128, (K, N)).astype(np.int8)
    kernels = random.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
    scale, columns = np.float32(0.01), random.uniform(0.005, 0.02, N).astype(np.float32)
    real, zero = (codes * scale).astype(np.float32), np.int8(0)
    dequantize, by_column = ("DequantizeLinear", "q s", "w", {}), ("DequantizeLinear", "q s", "w", {"axis": 1})
    forms: dict[str, tuple[list[tuple[Any, ...]], dict[str, Any]]] = {
        "tensor": ([dequantize, MATMUL], {"q": codes, "s": scale}),
        "columns": ([by_column, MATMUL], {"q": codes, "s": columns}),
        "quantized": (
            [("QuantizeLinear", "f s z", "q", {}), ("DequantizeLinear", "q s z", "w", {}), MATMUL],
            {"f": real, "s": scale, "z": zero},
        ),
        "cast and scaled": (
            [("Cast", "q", "c", {"to": TensorProto.FLOAT}), ("Mul", "c s", "w", {}), MATMUL],
            {"q": codes, "s": columns},
        ),
        "f16": ([("Cast", "f", "w", {"to": TensorProto.FLOAT}), MATMUL], {"f": real.astype(np.float16)}),
        "expanded": (
            [("Expand", "e n", "b", {}), ("Mul", "b s", "w", {}), MATMUL],
            {"e": real[:, :1], "n": np.array([K, N]), "s": columns},
        ),
    }
    products = {name: model(nodes, constants, [rows, K]) for name, (nodes, constants) in forms.items()}
    nodes = [("DequantizeLinear", "q s", "w", {"axis": 0}), ("Conv", "x w", "y", {"pads": [1] * 4})]
    constants = {"q": kernels, "s": columns[:CHANNELS]}
    return {**products, "convolution": model(nodes, constants, [1, CHANNELS, 7, 7])}


def model(nodes: Sequence[tuple[Any, ...]], constants: dict[str, Any], shape: list[int]) -> Any:
    operators = [helper.make_node(op, inputs.split(), [output], **more) for op, inputs, output, more in nodes]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    infos = [helper.make_tensor_value_info(*info) for info in (("x", TensorProto.FLOAT, shape), ("y", 1, None))]
    graph = helper.make_graph(operators, "weights", infos[:1], infos[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def seconds(call: Callable[[], Any]) -> float:
    """Return the median of a few calls in a row."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def report(name: str, model: Any, threads: int) -> None:
    """Print a line of the table."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    session = onnxruntime_session(model.SerializeToString(), threads)
    executable = mirlo.compile(model, cache=False, threads=threads)
    expected = session.run(None, {"x": x})[0]
    error = relative_error(executable.run({"x": x})["y"], expected)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(seconds(lambda: executable(x)))
        theirs.append(seconds(lambda: session.run(None, {"x": x})))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    micro = [1e6 * statistics.median(each) for each in (ours, theirs)]
    print(f"| {name} | {micro[0]:.0f} | {micro[1]:.0f} | {ratio:.2f} | {error:.1e} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("| weights | Mirlo us | ONNX Runtime us | ratio | difference |\n| --- | --- | --- | --- | --- |")
    for name, each in models(options.rows).items():
        report(name, each, options.threads)


if __name__ == "__main__":
    main()
