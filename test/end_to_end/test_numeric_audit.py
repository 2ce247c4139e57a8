"""Normalizations and functions around exp and log on large, small and shifted numbers, compared with f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo

SHAPE = (2, 8, 6, 5)
SAMPLES = ((0.0, 1.0), (1e4, 1.0), (1e6, 1.0), (3e4, 1e-2), (0.0, 1e18), (0.0, 1e-20))
"""Mean and standard deviation of the numbers."""
EPSILON, UNIT = 1e-5, 2.0**-24


def _normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPSILON)


def _by_group(x: np.ndarray) -> np.ndarray:
    return _normalized(x.reshape(2, 4, 2, 6, 5), (2, 3, 4)).reshape(x.shape)


Meaning = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
NORMALIZATIONS: dict[str, tuple[int, tuple[int, ...], dict[str, Any], int, Meaning]] = {
    "GroupNormalization": (
        21, (8,), {"num_groups": 4}, 2, lambda x, s, b: _by_group(x) * s[:, None, None] + b[:, None, None],
    ),
    "InstanceNormalization": (
        20, (8,), {}, 2, lambda x, s, b: _normalized(x, (2, 3)) * s[:, None, None] + b[:, None, None],
    ),
    "LayerNormalization": (20, (5,), {}, 2, lambda x, s, b: _normalized(x, (3,)) * s + b),
    "RMSNormalization": (23, (5,), {}, 1, lambda x, s, b: x / np.sqrt((x**2).mean(3, keepdims=True) + EPSILON) * s),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("mean, deviation", SAMPLES)
@pytest.mark.parametrize("operator", NORMALIZATIONS)
def test_normalizations(operator: str, mean: float, deviation: float) -> None:
    """The error grows with the mean as that of the difference does, and not with its square."""
    opset, shape, attributes, scales, meaning = NORMALIZATIONS[operator]
    rng = np.random.default_rng(5)
    x = (mean + deviation * rng.standard_normal(SHAPE)).astype(np.float32)
    s, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    feeds = dict(zip("xsb"[: 1 + scales], (x, s, b), strict=False))
    inputs = {name: (F32, array.shape) for name, array in feeds.items()}
    model = make_model([node(operator, " ".join(inputs), "y", **attributes)], inputs, ["y"], opset=opset)
    found = mirlo.compile(model, cache=False).run(feeds)["y"]
    expected = meaning(*(array.astype(np.float64) for array in (x, s, b)))
    condition = 1 + (0 if operator.startswith("RMS") else mean / deviation)
    assert np.abs(found - expected).max() <= 8 * UNIT * condition * np.abs(expected).max()


@pytest.mark.parametrize("mean, deviation", SAMPLES)
def test_batch_normalization(mean: float, deviation: float) -> None:
    rng = np.random.default_rng(6)
    x = (mean + deviation * rng.standard_normal(SHAPE)).astype(np.float32)
    s, b = (rng.standard_normal(8).astype(np.float32) for _ in range(2))
    m = (mean + deviation * rng.standard_normal(8)).astype(np.float32)
    v = np.full(8, min(deviation**2, 1e36), np.float32)
    feeds = {"x": x, "s": s, "b": b, "m": m, "v": v}
    inputs = {name: (F32, array.shape) for name, array in feeds.items()}
    model = make_model([node("BatchNormalization", "x s b m v", "y")], inputs, ["y"], opset=15)
    found = mirlo.compile(model, cache=False).run(feeds)["y"]
    wide = {name: a.astype(np.float64).reshape(-1, 1, 1) if a.ndim == 1 else a for name, a in feeds.items()}
    expected = (wide["x"] - wide["m"]) / np.sqrt(wide["v"] + EPSILON) * wide["s"] + wide["b"]
    assert np.abs(found - expected).max() <= 8 * UNIT * np.abs(expected).max()


def _log_sum_exp(x: np.ndarray) -> np.ndarray:
    return x.max(-1, keepdims=True) - _log_softmax(x).max(-1, keepdims=True)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    below = x - x.max(-1, keepdims=True)
    return below - np.log(np.exp(below).sum(-1, keepdims=True))


FUNCTIONS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "ReduceLogSumExp": ([node("ReduceLogSumExp", "x", "y", axes=[-1])], _log_sum_exp),
    "log of sum of exp": (
        [node("ReduceMax", "x", "m", axes=[-1]), node("Sub", "x m", "d"), node("Exp", "d", "e"),
         node("ReduceSum", "e a", "t"), node("Log", "t", "l"), node("Add", "l m", "y")],
        _log_sum_exp,
    ),
    "LogSoftmax": ([node("LogSoftmax", "x", "y")], _log_softmax),
    "Softplus": ([node("Softplus", "x", "y")], lambda x: np.logaddexp(0, x)),
    "LogSigmoid": (
        [node("Neg", "x", "n"), node("Softplus", "n", "p"), node("Neg", "p", "y")], lambda x: -np.logaddexp(0, -x),
    ),
    "Softmax": ([node("Softmax", "x", "y")], lambda x: np.exp(_log_softmax(x))),
}  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("mean", [0, 80, -80, 1e4, -1e4, 1e7, 1e30])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_large_numbers(name: str, mean: float) -> None:
    nodes, meaning = FUNCTIONS[name]
    x = (mean + 3 * np.random.default_rng(7).standard_normal((4, 50))).astype(np.float32)
    constants = {"a": np.array([-1])} if any("a" in each.input for each in nodes) else {}
    model = make_model(nodes, {"x": (F32, x.shape)}, ["y"], constants, opset=13)
    found = mirlo.compile(model, cache=False).run({"x": x})["y"]
    expected = meaning(x.astype(np.float64))
    size = np.abs(expected)
    if name == "LogSoftmax":
        size = size + 1
    elif name == "Softmax":
        size = size * (1 - np.log(size + 1e-30))
    bound = 8 * UNIT * size + 1e-45
    assert (np.abs(found - expected) <= bound).all(), np.abs(found - expected).max()
