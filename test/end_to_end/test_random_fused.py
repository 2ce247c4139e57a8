"""Random shapes and fused graphs of the kinds that are scheduled for speed, compared with ONNX Runtime.

Sizes are odd more often than not: main tiles, tails of rows and columns, and what is smaller than a vector occur.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo

TOLERANCE = 2e-5
"""Largest error, relative to the largest value of the output: sums of up to some thousand products in f32."""
SEEDS = 8


class Graph:
    """An ONNX graph and what random choices it is made with."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: dict[str, np.ndarray] = {}

    def size(self, low: int, high: int) -> int:
        return int(round(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.numbers.standard_normal(shape, dtype=np.float32)
        return name

    def weight(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> str:
        return self.constant(self.numbers.standard_normal(shape, dtype=np.float32) * np.float32(scale) + mean)

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def some(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def activated(self, x: str) -> str:
        """One of the activations, some spelled out as exporters do."""
        kind = self.random.choice(("none", "Relu", "Tanh", "Sigmoid", "silu", "gelu", "hardswish", "clip"))
        if kind == "none":
            return x
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "gelu":
            erf = self.op("Erf", self.op("Div", x, self.constant(np.float32(2**0.5))))
            half = self.op("Mul", x, self.op("Add", erf, self.constant(np.float32(1))))
            return self.op("Mul", half, self.constant(np.float32(0.5)))
        if kind == "hardswish":
            shifted = self.op("Add", x, self.constant(np.float32(3)))
            six = self.op("Clip", shifted, self.constant(np.float32(0)), self.constant(np.float32(6)))
            return self.op("Div", self.op("Mul", x, six), self.constant(np.float32(6)))
        if kind == "clip":
            return self.op("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))
        return self.op(kind, x)

    def model(self, out: str) -> Any:
        self.nodes.append(helper.make_node("Identity", [out], ["y"]))
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def layers(g: Graph) -> str:
    """Products with bias, activation, residual, then a row operation."""
    batch = [g.size(1, 3)] if g.some(0.3) else []
    m, k = g.size(1, 130), g.size(1, 300)
    x = g.input(*batch, m, k)
    for _ in range(g.random.randint(1, 3)):
        n = k if g.some(0.4) else g.size(1, 300)
        if g.some(0.3):
            w = g.op("Transpose", g.weight(n, k, scale=k**-0.5), perm=[1, 0])
        else:
            w = g.weight(k, n, scale=k**-0.5)
        y = g.op("MatMul", x, w)
        y = g.op("Add", y, g.weight(n)) if g.some(0.8) else y
        y = g.activated(y)
        x, k = g.op("Add", y, x) if n == k and g.some(0.7) else y, n
    end = g.random.choice(("none", "softmax", "norm", "mean"))
    if end == "softmax":
        return g.op("Softmax", x, axis=-1)
    if end == "norm":
        return g.op("LayerNormalization", x, g.weight(k, mean=1), g.weight(k), axis=-1)
    return g.op("ReduceMean", x, axes=[-1]) if end == "mean" else x


def convolutions(g: Graph) -> str:
    """Convolutions of all kinds with batch norm, activation, shortcut and pooling."""
    c, h, w = g.size(1, 70), g.size(3, 40), g.size(3, 40)
    x = g.input(1, c, h, w)
    for _ in range(g.random.randint(1, 3)):
        groups = g.random.choice([1, 1, 1, c, *[d for d in (2, 3, 4) if c % d == 0]])
        out = c if groups == c or g.some(0.3) else groups * g.size(1, max(2, 90 // groups))
        out = max(groups, out // groups * groups)
        window = [g.random.choice((1, 1, 3, 3, 5)) for _ in range(2)]
        stride, dilation = g.random.choice((1, 1, 2)), g.random.choice((1, 1, 1, 2))
        pads = [dilation * (s // 2) for s in window] * 2
        inputs = [x, g.weight(out, c // groups, *window, scale=(c // groups * window[0] * window[1]) ** -0.5)]
        inputs += [g.weight(out)] if g.some() else []
        y = g.op("Conv", *inputs, kernel_shape=window, strides=[stride] * 2, dilations=[dilation] * 2, pads=pads,
                 group=groups)  # fmt: skip
        if g.some(0.4):
            scale, bias, mean = g.weight(out, mean=1, scale=0.1), g.weight(out), g.weight(out)
            y = g.op("BatchNormalization", y, scale, bias, mean, g.constant(np.full(out, 1.5, np.float32)))
        y = g.activated(y)
        x = g.op("Add", y, x) if out == c and stride == 1 and g.some(0.7) else y
        c = out
        h, w = (-(-size // stride) for size in (h, w))
    end = g.random.choice(("none", "max", "average", "global", "last"))
    if end in ("max", "average") and min(h, w) >= 3:
        kind = "MaxPool" if end == "max" else "AveragePool"
        return g.op(kind, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    if end == "global":
        return g.op("Flatten", g.op("GlobalAveragePool", x))
    return g.op("Transpose", x, perm=[0, 2, 3, 1]) if end == "last" else x


def attention(g: Graph) -> str:
    """Return attention written as single operators, with or without a mask."""
    heads, length, each = g.size(1, 6), g.size(1, 70), g.size(1, 70)
    width = heads * each
    x = g.input(1, length, width)

    def part(order: list[int]) -> str:
        y = g.op("MatMul", x, g.weight(width, width, scale=width**-0.5))
        y = g.op("Reshape", y, g.constant(np.array([1, length, heads, each])))
        return g.op("Transpose", y, perm=order)

    scores = g.op("MatMul", part([0, 2, 1, 3]), part([0, 2, 3, 1]))
    scores = g.op("Mul", scores, g.constant(np.float32(each**-0.5)))
    if g.some():
        mask = np.triu(np.full((length, length), -1e4, np.float32), 1)
        scores = g.op("Add", scores, g.constant(mask[None, None]))
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), part([0, 2, 1, 3]))
    mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant(np.array([1, length, width])))
    return g.op("Add", x, g.activated(g.op("MatMul", mixed, g.weight(width, width, scale=width**-0.5))))


def movement(g: Graph) -> str:
    """Transposes, concatenations, slices and padding between elementwise operators."""
    shape = [g.size(1, 20) for _ in range(3)]
    x, y = g.input(*shape), g.input(*shape)
    order = g.random.sample(range(3), 3)
    x = g.op("Transpose", g.activated(g.op("Add", x, y)), perm=order)
    shape = [shape[axis] for axis in order]
    axis = g.random.randrange(3)
    x = g.op("Concat", x, g.activated(g.weight(*shape)), x, axis=axis)
    shape[axis] *= 3
    pads = [g.random.randint(0, 3) for _ in range(6)]
    x = g.op("Pad", x, g.constant(np.array(pads)))
    shape = [size + pads[i] + pads[3 + i] for i, size in enumerate(shape)]
    axis = g.random.randrange(3)
    start, step = g.random.randrange(shape[axis]), g.random.choice((1, 2, 3))
    bounds = [g.constant(np.array([number])) for number in (start, shape[axis], axis, step)]
    x = g.op("Slice", x, *bounds)
    return g.op("Mul", x, g.op("ReduceMax", x, axes=[g.random.randrange(3)]))


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", [layers, convolutions, attention, movement])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_agrees(make: Any, seed: int) -> None:
    graph = Graph(seed)
    model = graph.model(make(graph))
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, graph.inputs)
    found = mirlo.compile(model, threads=1 + seed % 2).run(graph.inputs)["y"]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    error = np.abs(found - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-30)
    assert error <= TOLERANCE, f"seed {seed}: relative error {error:.2e}"
