"""Narrow numbers: `python -m benchmarks.low_precision [MODEL.onnx...] [--size N] [--threads T] [--seconds S]`.

`--targets TARGET... --samples NAME...` compares bf16 with f32 on the samples alone, for these targets: the median ratio
of the CPU time of calls in turns.

Measures a matrix product, a small convolutional network, and the models that are named, in f32, in bf16
(`compile(precision="bf16")`) and in bytes: ONNX Runtime's tools quantize the model (QDQ, a scale per channel of the
weights, data without a sign), calibrated with random numbers. All take turns in one process. The table shows medians,
how many times faster each is than Mirlo and ONNX Runtime in f32, and the largest difference to f32, of the largest
number.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.amx import feeds_of
from mirlo.benchmarks.models import path
from mirlo.benchmarks.turns import relative_error
from mirlo.tools import samples

Feed = dict[str, np.ndarray]
CHANNELS = 64
CALIBRATIONS = 4


def matmul(size: int) -> Any:
    """Build y = x @ w."""
    weight = np.random.default_rng(0).standard_normal((size, size)) / size**0.5
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return _model(nodes, [size, size], [size, size], {"w": weight})


def network() -> Any:
    """Return convolutions with a residual addition, and a classifier."""
    random = np.random.default_rng(1)
    shapes = {"k0": (CHANNELS, 3, 3, 3), "k1": (CHANNELS, CHANNELS, 3, 3), "k2": (CHANNELS, CHANNELS, 1, 1)}
    weights = {name: random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5 for name, shape in shapes.items()}
    weights["w"] = random.standard_normal((CHANNELS, 10)) / CHANNELS**0.5
    nodes = [
        helper.make_node("Conv", ["x", "k0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "k1"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "k2"], ["e"]),
        helper.make_node("Add", ["e", "b"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("MatMul", ["i", "w"], ["y"]),
    ]
    return _model(nodes, [1, 3, 64, 64], [1, 10], weights)


def _model(nodes: list[Any], x: list[int], y: list[int], weights: dict[str, Any]) -> Any:
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x), ("y", y))]
    graph = helper.make_graph(nodes, "measured", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def feeds(model: Any, count: int) -> Iterator[Feed]:
    """Return random inputs of a model of floats with fixed shapes."""
    random = np.random.default_rng(2)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    for value in inputs:
        kind = value.type.tensor_type
        if kind.elem_type != TensorProto.FLOAT or any(not dim.dim_value for dim in kind.shape.dim):
            raise SystemExit(f"input '{value.name}': expected floats of a fixed shape")
    for _ in range(count):
        yield {
            value.name: random.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)
            for value in inputs
        }


def quantized(model: Any) -> Any:
    """Quantize the model to int8 with ONNX Runtime's tools."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Hands out random inputs."""

        def __init__(self) -> None:
            self.left = feeds(model, CALIBRATIONS)

        def get_next(self) -> Feed | None:
            return next(self.left, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "f32.onnx", Path(folder) / "bytes.onnx"
        onnx.save(model, source)
        quantize_static(
            source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return onnx.load(target)


def engines(model: Any, threads: int) -> dict[str, Callable[[], np.ndarray]]:
    """Return the measured functions by name; each returns its first output."""
    feed = next(feeds(model, 1))
    in_bytes = quantized(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3

    def ours(model: Any, precision: str | None = None) -> Callable[[], np.ndarray]:
        executable, arrays = mirlo.compile(model, threads=threads, precision=precision), list(feed.values())

        def call() -> np.ndarray:
            outputs = executable(*arrays)
            return np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs)

        return call

    def theirs(model: Any) -> Callable[[], np.ndarray]:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return lambda: np.asarray(session.run(None, feed)[0])

    return {
        "mirlo f32": ours(model), "mirlo bf16": ours(model, "bf16"), "mirlo bytes": ours(in_bytes),
        "onnxruntime f32": theirs(model), "onnxruntime bytes": theirs(in_bytes),
    }  # fmt: skip


def medians(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median seconds of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["mirlo f32"]) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def cpu_ratio(sample: str, target: str, rounds: int) -> tuple[float, float, float]:
    """Return the median CPU seconds of a sample in f32, those with `precision="bf16"`, and the median ratio."""
    executables = [
        mirlo.compile(path(sample), target=target, threads=1, precision=precision) for precision in (None, "bf16")
    ]
    feed = feeds_of(executables[0])
    seconds: list[list[float]] = [[], []]
    for executable in executables:
        executable(*feed)
    for _ in range(rounds):
        for executable, own in zip(executables, seconds, strict=True):
            start = time.process_time()
            executable(*feed)
            own.append(time.process_time() - start)
    ratio = statistics.median(narrow / wide for wide, narrow in zip(*seconds, strict=True))
    return statistics.median(seconds[0]), statistics.median(seconds[1]), ratio


def report(title: str, model: Any, threads: int, seconds: float) -> None:
    """Measure a model and print its part of the table."""
    calls = engines(model, threads)
    results = {name: call() for name, call in calls.items()}
    times, exact = medians(calls, seconds), results["mirlo f32"]
    for name, took in times.items():
        error = relative_error(results[name], exact)
        ratios = (times["mirlo f32"] / took, times["onnxruntime f32"] / took)
        print(f"{title:16} {name:18} {took * 1e3:9.3f} {ratios[0]:9.2f} {ratios[1]:14.2f} {error:9.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.low_precision", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx", help="models of floats with fixed shapes")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the product (default: 512)")
    parser.add_argument("--threads", type=int, default=1, help="threads of all (default: 1)")
    parser.add_argument("--targets", nargs="*", default=[], metavar="TARGET", help="compare bf16 with f32 for these")
    parser.add_argument("--samples", nargs="*", default=samples.names(), metavar="NAME", help="of these samples")
    parser.add_argument("--rounds", type=int, default=13, help="calls in turns for each target (default: 13)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each model (default: 2)")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # of the quantizer
    for sample, target in product(arguments.samples, arguments.targets):
        wide, narrow, ratio = cpu_ratio(sample, target, arguments.rounds)
        print(f"{sample:12} {target:28} f32 {wide * 1e3:7.1f} ms  bf16 {narrow * 1e3:7.1f} ms  {ratio:.2f}", flush=True)
    if arguments.targets:
        return
    print(f"{'model':16} {'engine':18} {'ms':>9} {'x mirlo':>9} {'x onnxruntime':>14} {'error':>9}")
    report(f"matmul {arguments.size}", matmul(arguments.size), arguments.threads, arguments.seconds)
    report("network", network(), arguments.threads, arguments.seconds)
    for file in arguments.models:
        report(Path(file).stem[:16], onnx.load(file), arguments.threads, arguments.seconds)


if __name__ == "__main__":
    main()
