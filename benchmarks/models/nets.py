"""A small builder of ONNX graphs with weights from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """Nodes are added one after the other; each method gives the name of its result."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, shape: Sequence[int], deviation: float | None = None, mean: float = 0.0) -> str:
        """Add normal values, divided by the root of the number of summands so that activations keep their size."""
        name = f"w{len(self.weights)}"
        seed = hashlib.sha256(f"{self.name} {name}".encode()).digest()[:8]
        values = np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(shape, dtype=np.float32)
        summed = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        scale = np.float32(deviation if deviation is not None else (2.0 / summed) ** 0.5)
        return self.constant(values * scale + np.float32(mean))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"node_{name}", **attributes))
        return name

    def conv(self, x: str, cin: int, cout: int, size: int, stride: int = 1, groups: int = 1, norm: bool = True) -> str:
        """Convolution that keeps the size, then batch norm as trained networks have it."""
        pad = size // 2
        settings = {"kernel_shape": [size, size], "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        x = self.op("Conv", x, self.weight((cout, cin // groups, size, size)), **settings)
        if not norm:
            return self.op("Add", x, self.weight((1, cout, 1, 1), 0.1))
        scale, bias, mean = self.weight((cout,), 0.1, 1.0), self.weight((cout,), 0.1), self.weight((cout,), 0.1)
        variance = self.constant(np.full(cout, 1.0, np.float32))
        return self.op("BatchNormalization", x, scale, bias, mean, variance, epsilon=1e-5)

    def dense(self, x: str, n_in: int, n_out: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight((n_in, n_out))), self.weight((n_out,), 0.02))

    def layer_norm(self, x: str, size: int) -> str:
        return self.op("LayerNormalization", x, self.weight((size,), 0.1, 1.0), self.weight((size,), 0.1), axis=-1)

    def gelu(self, x: str) -> str:
        """Return GELU in the operators that exporters write."""
        inner = self.op("Erf", self.op("Div", x, self.constant(np.float32(2**0.5))))
        half = self.op("Mul", x, self.op("Add", inner, self.constant(np.float32(1))))
        return self.op("Mul", half, self.constant(np.float32(0.5)))

    def reshape(self, x: str, *dims: int) -> str:
        return self.op("Reshape", x, self.constant(np.array(dims, np.int64)))

    def model(self, out: str, shape: Sequence[int]) -> Any:
        self.nodes.append(helper.make_node("Identity", [out], ["out"], name="node_out"))
        outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model)
        return model
