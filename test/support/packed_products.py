"""Products with packed weights, by bits, blocks and zero points, and their weights as f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx_models import make_model, node

TYPES = {"f32": np.float32, "f16": np.float16}
LEVELS = {"exact": 0, "i8": 4}
BOUNDS = {"exact": 1e-5, "i8x2": 2e-4, "i8": 2e-2, "bf16": 1e-2}
"""Largest error allowed, of the largest result."""


class Weights:
    """Random weights of a few bits, as MatMulNBits has them."""

    def __init__(self, columns: int, rows: int, bits: int, block: int, zeros: str = "", dtype: str = "f32"):
        random = np.random.default_rng(rows * bits + block)
        self.columns, self.rows, self.bits, self.block, self.dtype = columns, rows, bits, block, dtype
        blocks = -(-rows // block)
        kind = TYPES[dtype]
        self.constants = {
            "w": random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
            "s": random.uniform(0.005, 0.015, (columns, blocks)).astype(kind),
        }
        if zeros == "packed":
            self.constants["z"] = random.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8)
        if zeros == "real":
            self.constants["z"] = (random.random((columns, blocks)) * (1 << bits)).astype(kind)

    def model(self, level: int = 0, shape: tuple[Any, ...] = ("m",), **attributes: Any) -> Any:
        names = ["x", *self.constants] + ([""] * (3 - len(self.constants)) if "b" in self.constants else [])
        made = node(
            "MatMulNBits", " ".join(names), "y", domain="com.microsoft", K=self.rows, N=self.columns, bits=self.bits,
            block_size=self.block, accuracy_level=level, **attributes,
        )  # fmt: skip
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[self.dtype]))
        model = make_model([made], {"x": (kind, [*shape, self.rows])}, ["y"], self.constants)
        model.opset_import.add(domain="com.microsoft", version=1)
        return model

    def real(self) -> np.ndarray:
        """Return the weights as f64, [columns, rows]."""
        blocks = -(-self.rows // self.block)
        codes = self._unpacked(self.constants["w"]).reshape(self.columns, blocks, self.block)
        zeros = self.constants.get("z")
        if zeros is None:
            zeros = np.full((self.columns, blocks), 1 << (self.bits - 1))
        elif zeros.dtype == np.uint8:
            zeros = self._unpacked(zeros)[:, :blocks]
        scaled = (codes - zeros.astype(np.float64)[:, :, None]) * self.constants["s"].astype(np.float64)[:, :, None]
        return scaled.reshape(self.columns, -1)[:, : self.rows]

    def _unpacked(self, packed: np.ndarray) -> np.ndarray:
        flat = packed.reshape(self.columns, -1)
        fields = [flat >> shift & ((1 << self.bits) - 1) for shift in range(0, 8, self.bits)]
        return np.stack(fields, axis=-1).reshape(self.columns, -1).astype(np.float64)


def error(executable: Any, weights: Weights, rows: int) -> float:
    x = np.random.default_rng(rows).standard_normal((rows, weights.rows)).astype(TYPES[weights.dtype])
    wanted = x.astype(np.float64) @ weights.real().T
    return float(np.abs(np.asarray(executable(x), np.float64) - wanted).max() / np.abs(wanted).max())


def kernels(executable: Any) -> list[str]:
    return [kernel.symbol for kernel in executable.artifact.kernels]


SHAPES = ((33, 96), (32, 64), (50, 100), (16, 272))


def float_weights(columns: int, rows: int, block: int) -> tuple[Any, np.ndarray]:
    """Return a model with weights of e2m1 that are dequantized in blocks, and the weights as f64."""
    random = np.random.default_rng(rows + block)
    codes = random.integers(0, 16, (rows, columns)).astype(np.uint8)
    scales = random.uniform(0.5, 2, (rows // block, columns)).astype(np.float32)
    packed = (codes.reshape(-1)[::2] | codes.reshape(-1)[1::2] << 4).tobytes()
    nodes = [
        node("DequantizeLinear", "w s", "r", axis=0, block_size=block),
        node("MatMul", "x r", "y"),
    ]
    model = make_model(nodes, {"x": (onnx.TensorProto.FLOAT, ["m", rows])}, ["y"], {"s": scales}, opset=23)
    kind = onnx.TensorProto.FLOAT4E2M1
    model.graph.initializer.append(onnx.helper.make_tensor("w", kind, (rows, columns), packed, raw=True))
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
    return model, values * scales.astype(np.float64).repeat(block, 0)


TABLES = {
    "integers": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    "numbers": tuple(np.linspace(-1, 1, 16) ** 3),
}
"""What codes of 4 bits stand for."""


def table_weights(table: str, columns: int, rows: int, block: int) -> tuple[Any, np.ndarray]:
    """Return a model with weights whose codes name elements of a table, and the weights as f64."""
    random = np.random.default_rng(rows + block)
    codes = random.integers(0, 16, (columns, rows // block, block)).astype(np.uint8)
    scales = random.uniform(0.5, 2, (columns, rows // block, 1)).astype(np.float32)
    numbers = np.array(TABLES[table], np.float32)
    packed = (codes.reshape(-1)[::2] | codes.reshape(-1)[1::2] << 4).tobytes()
    nodes = [
        node("Cast", "w", "i", to=onnx.TensorProto.INT32),
        node("Gather", "t i", "g"),
        node("Mul", "g s", "b"),
        node("Reshape", "b shape", "r"),
        node("Transpose", "r", "c", perm=[1, 0]),
        node("MatMul", "x c", "y"),
    ]
    constants = {"s": scales, "t": numbers, "shape": np.array([columns, rows])}
    model = make_model(nodes, {"x": (onnx.TensorProto.FLOAT, ["m", rows])}, ["y"], constants, opset=23)
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.UINT4, codes.shape, packed, raw=True))
    values = numbers.astype(np.float64)[codes] * scales
    return model, values.reshape(columns, rows).T
