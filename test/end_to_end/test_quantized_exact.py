"""QDQ models compared with their evaluation in f64: each quantization rounds the exact value once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from c_compiler import with_c
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.quantized_accuracy import evaluate
from mirlo.targets.llvm.processor import host_processor

TYPES = {"u8": np.uint8, "i8": np.int8}
SCALES = ("random", "powers", "decimal")
"""Any; powers of two, with which a part of the results are halves; tenths as f32, with which they are almost halves."""
NEAREST = 2.0**-24
"""Values as near to a half may be rounded either way: it is the last bit of what the first rounding leaves."""
needs_fma = pytest.mark.skipif(not host_processor().has_fma, reason="needs fused multiply-add")


@dataclass
class QdqGraph:
    """A graph of dequantized operands, drawn from a seed."""

    random: np.random.Generator

    def __post_init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}
        self.scales: str = self.pick(*SCALES)

    def pick(self, *values: Any) -> Any:
        return values[self.random.integers(len(values))]

    def constant(self, value: np.ndarray | np.generic) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def op(self, kind: str, *operands: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, operands, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def scale(self, typical: float, shape: tuple[int, ...] = ()) -> np.ndarray:
        if self.scales == "random":
            return np.asarray(typical * self.random.uniform(0.5, 2, shape), np.float32)
        if self.scales == "powers":
            return np.full(shape, 2.0 ** np.round(np.log2(typical)), np.float32)
        return np.asarray(self.random.integers(1, 4, shape) * 10 ** np.round(np.log10(typical)), np.float32)

    def parameters(self, kind: str, typical: float) -> tuple[str, str]:
        low = np.iinfo(TYPES[kind]).min
        return self.constant(self.scale(typical)), self.constant(TYPES[kind](low + self.random.integers(200)))

    def data(self, kind: str, shape: tuple[int, ...]) -> str:
        info, name = np.iinfo(TYPES[kind]), f"x{len(self.inputs)}"
        self.inputs[name] = self.random.integers(info.min, info.max + 1, shape).astype(TYPES[kind])
        return self.op("DequantizeLinear", name, *self.parameters(kind, 0.02))

    def through_bytes(self, x: str, typical: float) -> str:
        """Quantize a value and dequantize it."""
        scale, zero = self.parameters("u8", typical)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, scale, zero), scale, zero)

    def weights(self, shape: tuple[int, ...], axis: int) -> str:
        size = self.pick((), (shape[axis],))
        values = self.constant(self.random.integers(-127, 128, shape).astype(np.int8))
        zero = self.constant(np.zeros(size, np.int8))
        return self.op("DequantizeLinear", values, self.constant(self.scale(0.01, size)), zero, axis=axis)

    def bias(self, channels: int) -> list[str]:
        """Return no bias, one in f32, or one in i32 with a scale of its own."""
        form = self.pick("none", "f32", "i32")
        if form == "none":
            return []
        if form == "f32":
            return [self.constant(self.random.standard_normal(channels).astype(np.float32))]
        whole = self.constant(self.random.integers(-9000, 9000, channels).astype(np.int32))
        return [self.op("DequantizeLinear", whole, self.constant(self.scale(1e-4, (channels,))), axis=0)]

    def block(self, x: str, channels: int) -> str:
        """Add an inverted residual block, as MobileNetV2 has them."""
        inner = self.op("Conv", x, self.weights((4 * channels, channels, 1, 1), 0), *self.bias(4 * channels))
        inner = self.through_bytes(self.op("Relu", inner), 0.05)
        depthwise = self.weights((4 * channels, 1, 3, 3), 0)
        inner = self.op("Conv", inner, depthwise, *self.bias(4 * channels), group=4 * channels, pads=[1] * 4)
        inner = self.through_bytes(self.op("Relu", inner), 0.05)
        inner = self.op("Conv", inner, self.weights((channels, 4 * channels, 1, 1), 0), *self.bias(channels))
        return self.through_bytes(self.op("Add", self.through_bytes(inner, 0.2), x), 0.2)

    def finished(self, x: str) -> Any:
        """Return the model that quantizes a value."""
        x = self.pick(
            lambda: x, lambda: self.op("Relu", x),
            lambda: self.op("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6))),
        )()  # fmt: skip
        kind = self.pick(*TYPES)
        self.op("QuantizeLinear", x, *self.parameters(kind, 0.05))
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        code = TensorProto.UINT8 if kind == "u8" else TensorProto.INT8
        out = helper.make_tensor_value_info(self.nodes[-1].output[0], code, None)
        stored = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "exact", infos, [out], stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _conv(graph: QdqGraph) -> Any:
    group, channels = graph.pick((1, 24), (16, 16), (4, 32))
    weight = graph.weights((channels, 16 // group, *graph.pick((1, 1), (3, 3))), 0)
    x = graph.data(graph.pick(*TYPES), (1, 16, 34, 34))
    x = graph.op("Conv", x, weight, *graph.bias(channels), strides=graph.pick((1, 1), (2, 2)), group=group)
    return graph.finished(x)


def _residual(graph: QdqGraph) -> Any:
    """Return a sum of an accumulator or a tensor of int8, and one of int8."""
    shape = (1, 24, 32, 32)
    if graph.pick(True, False):
        weight = graph.weights((24, 16, 1, 1), 0)
        x = graph.op("Conv", graph.data("u8", (1, 16, 32, 32)), weight, *graph.bias(24))
    else:
        x = graph.data(graph.pick(*TYPES), shape)
    return graph.finished(graph.op("Add", x, graph.data(graph.pick(*TYPES), shape)))


def _matmul(graph: QdqGraph) -> Any:
    weight = graph.weights((96, 80), 1)
    x = graph.op("MatMul", graph.data(graph.pick(*TYPES), (128, 96)), weight)
    bias = graph.bias(80)
    return graph.finished(graph.op("Add", x, *bias) if bias else x)


def _rescaled(graph: QdqGraph) -> Any:
    return graph.finished(graph.data(graph.pick(*TYPES), (64, 256)))


def _network(graph: QdqGraph) -> Any:
    x = graph.data("u8", (1, 16, 20, 20))
    for _ in range(4):
        x = graph.block(x, 16)
    x = graph.through_bytes(graph.op("GlobalAveragePool", x), 0.1)
    return graph.finished(graph.op("Gemm", graph.op("Flatten", x), graph.weights((16, 100), 1), *graph.bias(100)))


FORMS = {"conv": _conv, "residual": _residual, "matmul": _matmul, "rescaled": _rescaled}


def _compared(form: Callable[[QdqGraph], Any], seed: int, target: str = "llvm") -> np.ndarray:
    """Return the difference of each result in steps, but of those next to a half."""
    graph = QdqGraph(np.random.default_rng(seed))
    model = form(graph)
    found = np.asarray(mirlo.compile(model, target=target, cache=False)(**graph.inputs))
    values, last = evaluate(model, graph.inputs), model.graph.node[-1]
    exact, real = values[last.output[0]], values[last.input[0]] / values[last.input[1]].astype(np.float64)
    assert found.dtype == exact.dtype
    assert len(np.unique(exact)) > 4
    from_half = np.abs(np.abs(real - np.floor(real)) - 0.5)
    is_clear = (from_half == 0) | (from_half > NEAREST)
    return np.abs(found.astype(int) - exact)[is_clear]


@needs_fma
@pytest.mark.parametrize("form", FORMS)
def test_operators_are_exact(form: str) -> None:
    assert not any(_compared(FORMS[form], seed).any() for seed in (0, 1, 11))


@needs_fma
@pytest.mark.sample(0)
@pytest.mark.parametrize("form", FORMS)
def test_many_operators_are_exact(form: str) -> None:
    assert not any(_compared(FORMS[form], seed).any() for seed in range(2, 80))


@pytest.mark.sample(0)
@needs_fma
def test_network_is_exact() -> None:
    """A step of one value among the first would be several steps of the results."""
    assert not _compared(_network, 0).any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", ["llvm{cpu=x86-64-v2}", with_c("c")])
def test_without_fused_products(form: str, target: str) -> None:
    """Round a product first: a result next to a half is the other one."""
    if target.startswith("llvm") and host_processor().arch != "x86_64":
        pytest.skip("needs an x86-64 processor")
    assert _compared(FORMS[form], 1, target).max() <= 1
