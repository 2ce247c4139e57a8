"""Accuracy of quantized models: `python -m benchmarks.quantized_accuracy [MODEL] [--images N] [--nodes]`.

ONNX Runtime's tools quantize a model of images (QDQ, a scale per channel of the weights, u8 data), calibrated with
random numbers. The table shows the largest difference of the outputs from the model evaluated in f64, and from ONNX
Runtime without optimization, which computes in f32. With `--nodes`, the operators in front of each QuantizeLinear are
compiled alone, and given what the evaluation in f64 has: how many of their results differ.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import mirlo

Arrays = dict[str, np.ndarray]
SHAPE = (1, 3, 224, 224)
CALIBRATIONS = 4


def evaluate(model: Any, feeds: Arrays) -> Arrays:
    """Return all values of a QDQ model, floats in f64."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer} | feeds
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        operands = [_wide(values[name]) if name else None for name in node.input]
        function = _OPERATORS.get(node.op_type)
        if function is None:
            raise NotImplementedError(f"{node.op_type} has no evaluation in f64")
        values[node.output[0]] = np.asarray(function(*operands, **attributes))
    return values


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _along(x: np.ndarray, parameter: np.ndarray, axis: int) -> np.ndarray:
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def _quantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = 1) -> np.ndarray:
    limits = np.iinfo(zero.dtype)
    codes = np.rint(x / _along(x, scale, axis)) + _along(x, zero, axis).astype(np.float64)
    return np.clip(codes, limits.min, limits.max).astype(zero.dtype)


def _dequantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, axis: int = 1) -> np.ndarray:
    whole = x.astype(np.int64) - (0 if zero is None else _along(x, zero, axis).astype(np.int64))
    return np.asarray(whole * _along(x, scale, axis))


def _conv(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *,
    pads: Iterable[int] = (0, 0, 0, 0), strides: Iterable[int] = (1, 1), group: int = 1, **_: object,
) -> np.ndarray:  # fmt: skip
    top, left, bottom, right = pads
    down, across = strides
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))[:, :, ::down, ::across]
    if weight.shape[1] == 1:
        each = weight.reshape(group, -1, *weight.shape[2:])
        result = np.einsum("bghwij,goij->bgohw", windows, each)
    else:
        grouped = windows.reshape(x.shape[0], group, -1, *windows.shape[2:])
        each = weight.reshape(group, -1, *weight.shape[1:])
        parts = [np.tensordot(grouped[:, g], each[g], ((1, 4, 5), (1, 2, 3))) for g in range(group)]
        result = np.moveaxis(np.concatenate(parts, -1), -1, 1)
    result = result.reshape(x.shape[0], -1, *windows.shape[2:4])
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _gemm(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, *,
    transA: int = 0, transB: int = 0, alpha: float = 1.0, beta: float = 1.0,
) -> np.ndarray:  # fmt: skip
    product = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    return np.asarray(product if c is None else product + beta * c)


def _reshape(x: np.ndarray, shape: np.ndarray, **_: object) -> np.ndarray:
    return x.reshape([x.shape[i] if size == 0 else int(size) for i, size in enumerate(shape)])


def _max_pool(
    x: np.ndarray, *, kernel_shape: list[int], strides: list[int], pads: list[int], **_: object
) -> np.ndarray:
    edges = ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3]))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, edges, constant_values=-np.inf), kernel_shape, (2, 3))
    return np.asarray(windows[:, :, :: strides[0], :: strides[1]].max((-2, -1)))


def _mean(x: np.ndarray, axes: Any = (2, 3), *, keepdims: int = 1, **_: object) -> np.ndarray:
    return np.asarray(x.mean(tuple(int(axis) for axis in axes), keepdims=bool(keepdims)))


_OPERATORS: dict[str, Callable[..., np.ndarray]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": np.matmul,
    "Add": np.add,
    "Relu": lambda x: np.maximum(x, 0),
    "Clip": lambda x, low, high: np.clip(x, low, high),
    "MaxPool": _max_pool,
    "GlobalAveragePool": _mean,
    "ReduceMean": _mean,
    "Flatten": lambda x, **_: x.reshape(x.shape[0], -1),
    "Reshape": _reshape,
    "Identity": lambda x: x,
}


def images(count: int, seed: int) -> Iterable[np.ndarray]:
    for number in range(count):
        yield np.random.default_rng(seed + number).standard_normal(SHAPE).astype(np.float32)


def quantized(path: Path) -> Any:
    """Return a model of images, quantized by ONNX Runtime's tools."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    name = onnx.load(path, load_external_data=False).graph.input[0].name

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Hands out random images."""

        def __init__(self) -> None:
            self.left = iter(images(CALIBRATIONS, 0))

        def get_next(self) -> Arrays | None:
            image = next(self.left, None)
            return None if image is None else {name: image}

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quantized.onnx"
        quantize_static(
            path, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return onnx.load(target)


def cut(model: Any, node: Any, values: Arrays) -> tuple[Any, Arrays]:
    """Return the operators between other quantizations and this one as a model, and its inputs."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    producers = {name: each for each in model.graph.node for name in each.output}
    nodes: list[Any] = []
    feeds: Arrays = {}
    seen: set[str] = set()

    def visit(name: str) -> None:
        if not name or name in seen or name in stored:
            return
        seen.add(name)
        producer = producers.get(name)
        if producer is None or (producer is not node and producer.op_type == "QuantizeLinear"):
            feeds[name] = values[name]
            return
        for operand in producer.input:
            visit(operand)
        nodes.append(producer)

    visit(node.output[0])
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in (*feeds.items(), (node.output[0], values[node.output[0]]))
    ]
    constants = [stored[name] for name in {name for each in nodes for name in each.input} if name in stored]
    graph = helper.make_graph(nodes, "cut", infos[:-1], infos[-1:], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version), feeds


def report_nodes(model: Any, feeds: Arrays) -> None:
    """Print how many results of each kind of operators differ from their evaluation in f64, on its operands."""
    values, counts = evaluate(model, feeds), dict[str, list[int]]()
    for node in [node for node in model.graph.node if node.op_type == "QuantizeLinear"]:
        part, arrays = cut(model, node, values)
        actual = np.asarray(mirlo.compile(part, threads=1, cache=False)(**arrays))
        kinds = [each.op_type for each in part.graph.node if not each.op_type.endswith("quantizeLinear")]
        row = counts.setdefault("+".join(k for k in kinds if k != "QuantizeLinear") or "QuantizeLinear", [0, 0])
        row[0] += actual.size
        row[1] += int((actual != values[node.output[0]]).sum())
    for kind, (size, wrong) in counts.items():
        print(f"{kind:24} {size:10} values, {wrong:5} differ")


def report(model: Any, count: int) -> None:
    """Print the largest difference of the outputs of each engine, for some images."""
    import onnxruntime

    def session(level: Any) -> Callable[[Arrays], np.ndarray]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level, options.log_severity_level = level, 3
        options.add_session_config_entry("session.x64quantprecision", "1")
        runtime_session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return lambda feeds: np.asarray(runtime_session.run(None, feeds)[0])

    name, out = model.graph.input[0].name, model.graph.output[0].name
    executable, levels = mirlo.compile(model, threads=1), onnxruntime.GraphOptimizationLevel
    plain = session(levels.ORT_DISABLE_ALL)
    engines = {
        "mirlo": lambda feeds: np.asarray(executable(**feeds)), "onnxruntime": session(levels.ORT_ENABLE_ALL),
        "unoptimized": plain,
    }  # fmt: skip
    print(f"{'image':5} {'engine':12} {'from f64':>10} {'from unoptimized':>17} {'largest':>10}")
    for number, image in enumerate(images(count, 100)):
        feeds = {name: image}
        exact, f32 = evaluate(model, feeds)[out], plain(feeds)
        for engine, run in engines.items():
            actual = run(feeds)
            errors = [np.abs(actual - other).max() for other in (exact, f32)]
            print(f"{number:5} {engine:12} {errors[0]:10.4f} {errors[1]:17.4f} {np.abs(exact).max():10.3f}", flush=True)


def main() -> None:
    from benchmarks.models import path

    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized_accuracy", description=__doc__)
    parser.add_argument("model", nargs="?", default="mobilenetv2", help="a sample (default: mobilenetv2)")
    parser.add_argument("--images", type=int, default=6, help="random images (default: 6)")
    parser.add_argument("--nodes", action="store_true", help="compare operator by operator, on one image")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # of the quantizer
    model = quantized(path(arguments.model))
    if arguments.nodes:
        report_nodes(model, {model.graph.input[0].name: next(iter(images(1, 100)))})
    else:
        report(model, arguments.images)


if __name__ == "__main__":
    main()
