"""Operators of `com.microsoft` that ONNX Runtime has for GPUs only, or not at all, by what its documentation says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.testing.oracle import exact_session

F16, U8, I8, I16, U16 = 10, 2, 3, 5, 4


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def of_microsoft(operator: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return node(operator, inputs, outputs, domain="com.microsoft", **attributes)


def model_of(made: Any, arrays: dict[str, np.ndarray], constants: dict[str, Any]) -> Any:
    kinds = {"float32": F32, "float16": F16, "uint8": U8, "int8": I8, "int16": I16, "uint16": U16}
    inputs = {name: (kinds[array.dtype.name], array.shape) for name, array in arrays.items()}
    model = make_model([made], inputs, [name for name in made.output if name], constants)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


def run(made: Any, arrays: dict[str, np.ndarray], constants: dict[str, Any] | None = None) -> list[np.ndarray]:
    found = mirlo.compile(model_of(made, arrays, constants or {})).run(arrays)
    return [found[name] for name in made.output if name]


def gelu(x: np.ndarray) -> np.ndarray:
    from math import erf

    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, epsilon: float = 1e-5) -> np.ndarray:
    """Channels last."""
    grouped = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
    return ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * gamma + beta


def test_bias_add() -> None:
    x, skip, bias = numbers(2, 5, 8), numbers(2, 5, 8, seed=1), numbers(8, seed=2)
    (found,) = run(of_microsoft("BiasAdd", "x b s"), {"x": x, "b": bias, "s": skip})
    np.testing.assert_allclose(found, x + bias + skip, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_bias_split_gelu(dtype: Any) -> None:
    x, bias = numbers(2, 5, 16).astype(dtype), numbers(16, seed=2).astype(dtype)
    (found,) = run(of_microsoft("BiasSplitGelu", "x b"), {"x": x, "b": bias})
    left, right = np.split(x.astype(np.float64) + bias, 2, axis=-1)
    assert found.dtype == dtype and found.shape == (2, 5, 8)
    tolerance = 1e-5 if dtype is np.float32 else 1e-2
    np.testing.assert_allclose(found, left * gelu(right), rtol=tolerance, atol=tolerance)


@pytest.mark.sample(2)
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_group_norm(activation: int, channels_last: int, dtype: Any) -> None:
    """Scale and bias are f32, whatever x is."""
    x, gamma, beta = numbers(2, 3, 5, 8).astype(dtype), numbers(8, seed=1), numbers(8, seed=2)
    wanted = group_norm(x, gamma, beta, 4, 1e-3)
    wanted = silu(wanted) if activation else wanted
    made = of_microsoft(
        "GroupNorm", "x g b", groups=4, epsilon=1e-3, activation=activation, channels_last=channels_last
    )
    given = x if channels_last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    (found,) = run(made, {"x": given}, {"g": gamma, "b": beta})
    tolerance = 1e-5 if dtype is np.float32 else 1e-2
    found = found if channels_last else found.transpose(0, 2, 3, 1)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.sample(3)
@pytest.mark.parametrize("skip_shape", [(2, 3, 5, 8), (2, 1, 1, 8), (2, 8)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_skip_group_norm(skip_shape: tuple[int, ...], has_bias: bool) -> None:
    x, skip = numbers(2, 3, 5, 8), numbers(*skip_shape, seed=5)
    constants = {"g": numbers(8, seed=1), "b": numbers(8, seed=2), "c": numbers(8, seed=3)}
    made = of_microsoft("SkipGroupNorm", "x g b s c" if has_bias else "x g b s", "y z", groups=2, activation=1)
    found, total = run(made, {"x": x, "s": skip}, {k: v for k, v in constants.items() if k in made.input})
    wanted = x + skip.reshape(2, *skip_shape[1:-1] or (1, 1), 8) + (constants["c"] if has_bias else 0)
    np.testing.assert_allclose(total, wanted, rtol=1e-6, atol=1e-6)
    expected = silu(group_norm(wanted, constants["g"], constants["b"], 2))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_skip_group_norm_channels_first() -> None:
    x, skip, bias = numbers(2, 8, 3, 5), numbers(2, 8, seed=5), numbers(8, seed=3)
    constants = {"g": numbers(8, seed=1), "b": numbers(8, seed=2), "c": bias}
    made = of_microsoft("SkipGroupNorm", "x g b s c", "y z", groups=2, activation=0, channels_last=0)
    found, total = run(made, {"x": x, "s": skip}, constants)
    wanted = x + skip[:, :, None, None] + bias[:, None, None]
    np.testing.assert_allclose(total, wanted, rtol=1e-6, atol=1e-6)
    expected = group_norm(wanted.transpose(0, 2, 3, 1), constants["g"], constants["b"], 2).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("axes", "keepdims"), [([1, -1], 1), ([0, 2], 0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_mean(axes: list[int], keepdims: int, dtype: Any) -> None:
    bounds = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(bounds.min, bounds.max, (3, 4, 5), endpoint=True).astype(dtype)
    constants = {"s": np.float32(0.5), "z": dtype(11), "t": np.float32(0.125), "w": dtype(bounds.max // 2)}
    made = of_microsoft("QLinearReduceMean", "x s z t w", axes=axes, keepdims=keepdims)
    (found,) = run(made, {"x": x}, constants)
    mean = ((x.astype(np.float64) - 11) * 0.5).mean(tuple(axes), keepdims=bool(keepdims))
    wanted = np.clip(np.rint(mean / 0.125) + bounds.max // 2, bounds.min, bounds.max)
    assert found.dtype == dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found.astype(int), wanted, atol=1)


MATRIX = np.random.default_rng(2).integers(0, 255, (7, 5))
BESIDE_RUNTIME: dict[str, tuple[Any, dict[str, np.ndarray], dict[str, Any]]] = {
    "transposed": (of_microsoft("TransposeMatMul", "x w", transA=1, alpha=0.5),
                   {"x": numbers(2, 7, 3), "w": numbers(2, 7, 5, seed=1)}, {}),
    "rms": (node("SimplifiedLayerNormalization", "x s", "y", axis=-1, epsilon=1e-3), {"x": numbers(2, 3, 8)},
            {"s": numbers(8, seed=1)}),
    "i16": (of_microsoft("MatMulInteger16", "x w"),
            {"x": (MATRIX * 100 - 12000).astype(np.int16), "w": (MATRIX.T * 90 - 12000).astype(np.int16)}, {}),
    "to float": (of_microsoft("MatMulIntegerToFloat", "x w s t z u b"),
                 {"x": MATRIX.astype(np.uint8), "w": MATRIX.T.astype(np.uint8)},
                 {"s": np.float32(0.1), "t": np.float32(0.02), "z": np.uint8(120), "u": np.uint8(100),
                  "b": numbers(7)}),
    "to float by columns": (of_microsoft("MatMulIntegerToFloat", "x w s t z u"),
                            {"x": MATRIX.astype(np.uint8), "w": (MATRIX.T // 2 - 64).astype(np.int8)},
                            {"s": np.float32(0.1), "t": np.abs(numbers(7)) + 0.1, "z": np.uint8(120),
                             "u": np.arange(7, dtype=np.int8)}),
    "grid": (of_microsoft("GridSample", "x g", mode="bicubic", padding_mode="border", align_corners=1),
             {"x": numbers(1, 2, 5, 6), "g": np.clip(numbers(1, 3, 4, 2, seed=1), -1, 1)}, {}),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", BESIDE_RUNTIME)
def test_beside_onnx_runtime(name: str) -> None:
    made, arrays, constants = BESIDE_RUNTIME[name]
    session = exact_session(model_of(made, arrays, constants))
    for found, wanted in zip(run(made, arrays, constants), session.run(None, arrays), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


BAD: dict[str, tuple[Any, str]] = {
    "halves": (of_microsoft("BiasSplitGelu", "x b"), "the last dim must be even"),
    "no activation": (of_microsoft("GroupNorm", "x b b", groups=1), "attribute 'activation' is missing"),
    "groups": (of_microsoft("GroupNorm", "x b b", groups=2, activation=0), "must divide into 2 groups"),
    "a row": (of_microsoft("GroupNorm", "b b b", groups=1, activation=0), "must have a channel dim and spatial dims"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_told(name: str) -> None:
    made, part = BAD[name]
    with pytest.raises(mirlo.MirloError, match=part):
        run(made, {"x": numbers(2, 3, 5)}, {"b": numbers(5)})
