"""Normalizations, matrix products, einsum, attention and quantization against numpy and ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx_reference import onnx_node
from operator_cases import Case, Runner, f32, ints

SIXTEEN = {"rtol": 4e-3, "atol": 4e-3}


def layer_norm(x: np.ndarray, axis: int, epsilon: float = 1e-5) -> np.ndarray:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True)
    return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + epsilon)


def rms_norm(x: np.ndarray, axis: int, epsilon: float = 1e-5) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(tuple(range(axis % x.ndim, x.ndim)), keepdims=True) + epsilon)


def normalize_cases() -> list[Case]:
    made = []
    x = f32(2, 3, 4, 5, scale=3.0) + 2.0
    for axis in (0, 1, 2, -1):
        scale, bias = f32(*x.shape[axis % 4 :], seed=1), f32(*x.shape[axis % 4 :], seed=2)
        exact = layer_norm(x, axis)
        made += [
            Case("layer_norm", [x, scale, bias], {"axis": axis}, exact * scale + bias),
            Case("layer_norm", [x, scale, None], {"axis": axis}, exact * scale),
            Case("layer_norm", [x, None, None], {"axis": axis, "epsilon": 0.5}, layer_norm(x, axis, 0.5)),
            Case("rms_norm", [x, scale], {"axis": axis}, rms_norm(x, axis) * scale),
            Case("rms_norm", [x, None], {"axis": axis}, rms_norm(x, axis)),
        ]
    far = f32(2, 200) + 1000.0
    made.append(Case("layer_norm", [far, None, None], {}, layer_norm(far, -1), rtol=1e-3, atol=1e-3, note="two passes"))
    half = x.astype(np.float16)
    made.append(Case("layer_norm", [half, None, None], {}, layer_norm(half, -1), **SIXTEEN))
    scale, bias, mean = (f32(3, seed=i) for i in (1, 2, 3))
    variance = np.abs(f32(3, seed=4)) + 0.1
    exact = onnx_node("BatchNormalization", [x, scale, bias, mean, variance])
    made.append(Case("batch_norm", [x, scale, bias, mean, variance], {}, exact, rtol=1e-4, atol=1e-4))
    last = x.transpose(0, 2, 3, 1)
    made.append(
        Case(
            "batch_norm",
            [last, scale, bias, mean, variance],
            {"axis": -1},
            exact.transpose(0, 2, 3, 1),
            rtol=1e-4,
            atol=1e-4,
        )
    )
    exact = onnx_node("InstanceNormalization", [x, scale, bias])
    made.append(Case("instance_norm", [x, scale, bias], {}, exact, rtol=1e-4, atol=1e-4))
    y = f32(2, 6, 3, 4)
    scale, bias = f32(6, seed=1), f32(6, seed=2)
    for groups in (1, 2, 3, 6):
        exact = layer_norm(y.reshape(2, groups, -1), 2).reshape(y.shape) * scale[:, None, None] + bias[:, None, None]
        made.append(Case("group_norm", [y, scale, bias], {"groups": groups}, exact))
    for size in (1, 3, 4, 5):
        attributes = {"size": size, "alpha": 0.1, "beta": 0.6, "bias": 1.5}
        padded = np.pad(y, ((0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0))) ** 2
        squares = sum(padded[:, k : k + 6] for k in range(size))
        made.append(Case("lrn", [y], attributes, y / (1.5 + 0.1 / size * squares) ** 0.6, rtol=1e-4))
    for axis in (0, -1):
        for p in (1, 2):
            exact = y / np.linalg.norm(y.astype(np.float64), ord=p, axis=axis, keepdims=True)
            made.append(Case("lp_normalize", [y], {"axis": axis, "p": p}, exact))
    made.append(Case("lp_normalize", [np.zeros((2, 3), np.float32)], {}, np.zeros((2, 3)), note="zeros"))
    return made


def product_cases() -> list[Case]:
    made = []
    pairs = (
        ((4, 5), (5, 3)),
        ((2, 4, 5), (5, 3)),
        ((2, 1, 4, 5), (3, 5, 2)),
        ((5,), (5, 3)),
        ((4, 5), (5,)),
        ((5,), (5,)),
        ((17, 33), (33, 19)),
    )
    for left, right in pairs:
        x, y = f32(*left), f32(*right, seed=1)
        made.append(Case("matmul", [x, y], {}, x @ y, atol=1e-4))
        if x.ndim > 1 and y.ndim > 1:
            transposed = [np.swapaxes(x, -1, -2), np.swapaxes(y, -1, -2)]
            made.append(Case("matmul", transposed, {"transpose_lhs": True, "transpose_rhs": True}, x @ y, atol=1e-4))
    x, y = ints(-128, 128, 3, 40, dtype=np.int8), ints(0, 256, 40, 5, dtype=np.uint8)
    made.append(Case("matmul", [x, y], {"out_dtype": "i32"}, x.astype(np.int32) @ y.astype(np.int32)))
    numbers = ints(-9, 9, 4, 4, dtype=np.int32)
    made.append(Case("matmul", [numbers, numbers], {}, numbers @ numbers))
    half = f32(8, 500).astype(np.float16)
    made.append(
        Case("matmul", [half, half.T], {}, half.astype(np.float32) @ half.astype(np.float32).T, rtol=2e-3, atol=1e-2)
    )
    sums = [
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("ij,jk", (3, 4), (4, 5)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
        ("ij->ji", (3, 4)),
        ("ij->", (3, 4)),
        ("ii->i", (4, 4)),
        ("ii", (4, 4)),
        ("i,j->ij", (3,), (4,)),
        ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
        ("ab,ab,ab->a", (2, 3), (2, 3), (2, 3)),
        ("ij,ij->ij", (3, 4), (3, 4)),
    ]
    for equation, *shapes in sums:
        xs = [f32(*shape, seed=i) for i, shape in enumerate(shapes)]
        exact = np.einsum(equation, *xs)
        made.append(Case("einsum", xs, {"equation": equation}, exact, variadic=True, atol=1e-4, note=equation))
    return made


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, scale: Any = None, past: int | None = None
) -> Any:
    """With `past`, query s sees keys up to s + past."""
    times = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    scores = q.astype(np.float64) @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if past is not None:
        scores = np.where(np.tri(*scores.shape[-2:], past, dtype=bool), scores, -np.inf)
    peak = scores.max(-1, keepdims=True)
    raised = np.exp(scores - np.where(np.isinf(peak), 0, peak))
    return raised / np.maximum(raised.sum(-1, keepdims=True), 1e-30) @ v


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    half = cos.shape[-1]
    transposed, rest = x[..., : 2 * half], x[..., 2 * half :]
    first, second = (
        (transposed[..., 0::2], transposed[..., 1::2])
        if interleaved
        else (transposed[..., :half], transposed[..., half:])
    )
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    joined = (
        np.stack([real, imaginary], -1).reshape(transposed.shape)
        if interleaved
        else np.concatenate([real, imaginary], -1)
    )
    return np.concatenate([joined, rest], -1)


def attention_cases() -> list[Case]:
    made = []
    for heads, shared, length, context in ((4, 4, 5, 5), (4, 2, 5, 7), (6, 1, 1, 9), (1, 1, 6, 4)):
        q, k, v = f32(2, heads, length, 8), f32(2, shared, context, 8, seed=1), f32(2, shared, context, 6, seed=2)
        bias = f32(length, context, seed=3)
        seen = np.ones((2, 1, 1, context), bool)
        seen[1, ..., -2:] = False
        hidden = np.arange(length * context).reshape(length, context) >= context
        made += [
            Case("attention", [q, k, v, None], {}, attended(q, k, v)),
            Case("attention", [q, k, v, bias], {"scale": 0.3}, attended(q, k, v, bias, 0.3)),
            Case("attention", [q, k, v, seen], {}, attended(q, k, v, seen)),
            Case("attention", [q, k, v, hidden], {}, attended(q, k, v, hidden), note="all hidden"),
            Case("attention", [q, k, v, None], {"causal": True}, attended(q, k, v, past=0)),
            Case(
                "attention",
                [q, k, v, bias],
                {"causal": True, "at_end": True},
                attended(q, k, v, bias, past=context - length),
            ),
        ]
    x = f32(2, 3, 4, 8)
    for table in ((2, 1, 4, 4), (4, 4), (4, 3), (1, 1, 4, 2), (4, 1)):
        angle = f32(*table, seed=1)
        cos, sin = np.cos(angle), np.sin(angle)
        for interleaved in (False, True):
            exact = rotated(x, cos, sin, interleaved)
            made.append(Case("rotary_embedding", [x, cos, sin], {"interleaved": interleaved}, exact))
    return made


def quantize_cases() -> list[Case]:
    made = []
    x = f32(3, 4, 5, scale=4.0)
    for name, kind in (("i8", np.int8), ("u8", np.uint8), ("i16", np.int16), ("u16", np.uint16)):
        scale, zero = np.float32(0.05).reshape(()), np.array(3, kind)
        vector, zeros = np.abs(f32(4, seed=1)) + 0.01, ints(0, 9, 4, dtype=kind)
        quantized = onnx_node("QuantizeLinear", [x, scale, zero], opset=21)
        along = onnx_node("QuantizeLinear", [x, vector, zeros], {"axis": 1}, opset=21)
        made += [
            Case("quantize", [x, scale, zero], {"dtype": name}, quantized),
            Case("quantize", [x, vector, zeros], {"dtype": name, "axis": -2}, along),
            Case(
                "dequantize",
                [quantized, scale, zero],
                {},
                onnx_node("DequantizeLinear", [quantized, scale, zero], opset=21),
            ),
            Case(
                "dequantize",
                [along, vector, zeros],
                {},
                onnx_node("DequantizeLinear", [along, vector, zeros], {"axis": 1}, opset=21),
            ),
            Case(
                "dequantize",
                [along, vector, None],
                {"dtype": "f16"},
                along.astype(np.float32) * vector[:, None],
                **SIXTEEN,
            ),
        ]
    halves = np.float32([-1.5, -0.5, 0.5, 1.5, 2.5, 300.0, -300.0])
    one = np.float32(1.0).reshape(())
    made.append(
        Case(
            "quantize", [halves, one, None], {"dtype": "i8"}, np.int8([-2, 0, 0, 2, 2, 127, -128]), note="half to even"
        )
    )
    blocks = np.abs(f32(3, 2, 5, seed=1)) + 0.1
    exact = np.clip(np.rint(x / np.repeat(blocks, 3, 1)[:, :4]), -128, 127).astype(np.int8)
    made.append(Case("quantize", [x, blocks, None], {"dtype": "i8", "axis": 1, "block": 3}, exact))
    wide = ints(-1000, 1000, 6, dtype=np.int32)
    made.append(Case("dequantize", [wide, np.float32(0.5).reshape(()), np.array(7, np.int32)], {}, (wide - 7) * 0.5))
    made.append(Case("quantize", [wide, one, None], {"dtype": "i8"}, np.clip(wide, -128, 127).astype(np.int8)))
    return made


RUNNER = Runner(normalize_cases() + product_cases() + attention_cases() + quantize_cases())


@pytest.mark.sample(6)
@RUNNER.parametrize
def test_normalize(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)
