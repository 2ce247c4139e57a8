"""Models whose kernels are scheduled by rules of GPUs with primitives, and the checks of their traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx_models import F32, I64, make_model, node

import mirlo
from mirlo.tools.explain.model import explain_model

MODELS: dict[str, Callable[[], ModelProto]] = {
    "several outputs": lambda: make_model(
        [node("Add", "x b", "s"), node("Sigmoid", "s", "a"), node("Mul", "s a", "y")],
        {"x": (F32, [64, 2048]), "b": (F32, [2048])}, ["y"],
    ),
    "no vectors": lambda: make_model([node("Tanh", "x", "y")], {"x": (F32, [7, 13])}, ["y"]),
    "edges": lambda: make_model(
        [node("Pad", "x pads", "y")], {"x": (F32, [16, 56, 56])}, ["y"], {"pads": np.array([0, 1, 1, 0, 1, 1])}
    ),
    "rows that data choose": lambda: make_model(
        [node("Gather", "x i", "y")], {"x": (F32, [50, 512]), "i": (I64, [128])}, ["y"]
    ),
    "operands one after the other": lambda: make_model(
        [node("Concat", "a b", "y", axis=1)], {"a": (F32, [256, 64]), "b": (F32, [256, 192])}, ["y"]
    ),
    "in another order": lambda: make_model(
        [node("Transpose", "x", "y", perm=[0, 2, 1, 3])], {"x": (F32, [1, 40, 12, 64])}, ["y"]
    ),
    "tiles in shared memory, beside another operand": lambda: make_model(
        [node("Transpose", "x", "t", perm=[1, 0]), node("Add", "t b", "y")],
        {"x": (F32, [530, 515]), "b": (F32, [515, 530])}, ["y"],
    ),
    "a window, and its mean": lambda: make_model(
        [node("AveragePool", "x", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {"x": (F32, [1, 3, 9, 11])}, ["y"]
    ),
    "rows of a block, with edges": lambda: make_model(
        [node("Softmax", "x", "y", axis=-1)], {"x": (F32, [37, 197])}, ["y"]
    ),
    "rows of one result": lambda: make_model(
        [node("ReduceMean", "x", "y", axes=[1], keepdims=0)], {"x": (F32, [5, 40000])}, ["y"], opset=13
    ),
    "a row and two operands": lambda: make_model(
        [node("LayerNormalization", "x g b", "y", axis=-1)],
        {"x": (F32, [6, 768]), "g": (F32, [768]), "b": (F32, [768])}, ["y"],
    ),
    "dynamic rows": lambda: make_model([node("Softmax", "x", "y", axis=-1)], {"x": (F32, ["n", "m"])}, ["y"]),
    "one element": lambda: make_model([node("Exp", "x", "y")], {"x": (F32, [])}, ["y"]),
    "dynamic": lambda: make_model([node("Add", "x b", "y")], {"x": (F32, ["n", "m"]), "b": (F32, ["m"])}, ["y"]),
}  # fmt: skip


def schedule_of(model: ModelProto, target: str) -> dict[str, Any]:
    """Return what rules print of the kernels of a model, as a caller pastes it: functions."""
    primitives: dict[str, Any] = {}
    for kernel in explain_model(model, target=target, tune=False).kernels:
        assert kernel.schedule is not None
        text, pasted = str(kernel.schedule.trace), dict[str, Any]()
        assert text.startswith("def schedule(s):") and "apply_rule" not in text, text
        exec(text, pasted)
        primitives[kernel.name] = pasted["schedule"]
    return primitives


def arrays_of(model: ModelProto) -> list[np.ndarray]:
    """Return inputs: dynamic dims have 37 and 50 elements."""
    generator, arrays = np.random.default_rng(0), []
    for given in model.graph.input:
        kind = given.type.tensor_type
        dims = [dim.dim_value or {"n": 37, "m": 50}[dim.dim_param] for dim in kind.shape.dim]
        if kind.elem_type == I64:
            arrays.append(generator.integers(0, 50, dims))
        else:
            arrays.append(np.asarray(generator.standard_normal(dims), np.float32))
    return arrays


def compile_both(name: str, target: str) -> tuple[Any, Any, list[np.ndarray]]:
    """Return a model as rules schedule it, and as the primitives that they print do, with inputs."""
    model = MODELS[name]()
    given = schedule_of(model, target)
    ours, theirs = (mirlo.compile(model, target, schedules=each, cache=False, tune=False) for each in ({}, given))
    return ours, theirs, arrays_of(model)
