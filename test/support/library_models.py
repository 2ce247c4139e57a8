"""Models of which tests make libraries, and the comparison of their programs with Python."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from libraries import Program
from onnx_models import F32, make_model, node

import mirlo
from mirlo.targets.c.compiler import find_compiler

RNG = np.random.default_rng(0)


def dynamic_model() -> onnx.ModelProto:
    """Return a model of any batch: products, rows, and views."""
    w = np.random.default_rng(3).standard_normal((40, 24)).astype(np.float32)
    nodes = [node("MatMul", "x w", "a"), node("Gelu", "a", "b"), node("Softmax", "b", "y"), node("Flatten", "x", "z")]
    return make_model(nodes, {"x": (F32, ("n", 40))}, ["y", "z"], {"w": w}, opset=20)


def f16_model() -> onnx.ModelProto:
    w = np.random.default_rng(3).standard_normal((40, 24)).astype(np.float16)
    nodes = [
        node("Cast", "x", "h", to=onnx.TensorProto.FLOAT16), node("MatMul", "h w", "a"), node("Gelu", "a", "b"),
        node("Softmax", "b", "y"),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, ("n", 40))}, ["y"], {"w": w}, opset=20)


def int8_model() -> onnx.ModelProto:
    w = np.random.default_rng(4).integers(-128, 128, (70, 33)).astype(np.int8)
    nodes = [node("MatMulInteger", "x w", "a"), node("Cast", "a", "y", to=F32)]
    return make_model(nodes, {"x": (onnx.TensorProto.UINT8, ("n", 70))}, ["y"], {"w": w})


def late_model() -> onnx.ModelProto:
    """Return a model with outputs whose sizes depend on data."""
    return make_model([node("NonZero", "x", "y"), node("Unique", "x", "z")], {"x": (F32, ("n", 5))}, ["y", "z"])


def short_model() -> onnx.ModelProto:
    """Return a model whose code has no loop: a product and a sum are rounded once, or twice."""
    nodes = [node("Mul", "x x", "a"), node("Sub", "a b", "y")]
    return make_model(nodes, {"x": (F32, (3,)), "b": (F32, (3,))}, ["y"])


MODELS: dict[str, tuple[Any, dict[str, np.ndarray]]] = {
    "dynamic": (dynamic_model, {"x": RNG.standard_normal((7, 40)).astype(np.float32)}),
    "no rows": (dynamic_model, {"x": np.zeros((0, 40), np.float32)}),
    "int8": (int8_model, {"x": RNG.integers(0, 256, (5, 70)).astype(np.uint8)}),
    "short": (short_model, {"x": np.float32([1.1, 1.7, 2.3]), "b": np.square(np.float32([1.1, 1.7, 2.3]))}),
    "late": (late_model, {"x": RNG.integers(0, 3, (6, 5)).astype(np.float32)}),
}


@cache
def compiler() -> str:
    return find_compiler()


def require_same(program: Program, model: Any, inputs: dict[str, np.ndarray], **options: Any) -> None:
    """Require that a program computes what Python does, bit for bit."""
    expected = mirlo.compile(model, cache=False, jobs=1, **options).run(inputs).values()
    for found, wanted in zip(program.run(inputs), expected, strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()
