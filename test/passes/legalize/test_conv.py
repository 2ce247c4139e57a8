"""Convolutions, pooling against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx_reference import onnx_node
from operator_cases import Case, Runner, f32, ints

LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
IO = {3: (2, 1, 0), 4: (2, 3, 1, 0), 5: (2, 3, 4, 1, 0)}

# x, weight (OI*), attributes
CONV: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 8), (4, 3, 3, 3), {}),
    ((2, 3, 9, 7), (5, 3, 3, 3), {"padding": (1, 1, 1, 1), "strides": (2, 2)}),
    ((1, 4, 10, 10), (6, 4, 1, 1), {"strides": (2, 2)}),
    ((1, 4, 11, 9), (6, 4, 3, 5), {"padding": (0, 2, 1, 3)}),
    ((1, 4, 12, 12), (6, 4, 3, 3), {"dilations": (2, 3), "padding": (2, 3, 2, 3)}),
    ((1, 6, 7, 7), (6, 1, 3, 3), {"groups": 6, "padding": (1, 1, 1, 1)}),
    ((1, 6, 7, 7), (12, 1, 3, 3), {"groups": 6, "padding": (1, 1, 1, 1), "strides": (2, 1)}),
    ((2, 6, 7, 7), (9, 2, 3, 3), {"groups": 3, "padding": (1, 0, 0, 1)}),
    ((1, 1, 5, 5), (2, 1, 5, 5), {}),
    ((2, 3, 17), (4, 3, 5), {"padding": (2, 2), "strides": (3,)}),
    ((1, 4, 13), (4, 1, 3), {"groups": 4}),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 3), {"padding": (0, 1, 1, 1, 1, 1), "strides": (1, 2, 2)}),
    ((1, 17, 19, 23), (13, 17, 3, 3), {"padding": (1, 1, 1, 1)}),
]


def onnx_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    names = {"groups": "group", "padding": "pads", "kernel": "kernel_shape"}
    return {names.get(k, k): int(v) if isinstance(v, bool) else v for k, v in attributes.items()}


def conv_cases() -> list[Case]:
    made = []
    for shape, weight_shape, attributes in CONV:
        x, weight, bias = f32(*shape), f32(*weight_shape, seed=1), f32(weight_shape[0], seed=2)
        exact = onnx_node("Conv", [x, weight, bias], onnx_attributes(attributes))
        plain = onnx_node("Conv", [x, weight], onnx_attributes(attributes))
        rank = len(shape)
        moved, kernel = x.transpose(LAST[rank]), weight.transpose(IO[rank])
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
        made += [
            Case("conv", [x, weight, bias], attributes, exact, **tolerance),
            Case("conv", [x, weight, None], attributes, plain, **tolerance),
            Case(
                "conv",
                [moved, kernel, bias],
                {**attributes, "data_layout": "N*C", "kernel_layout": "*IO"},
                exact.transpose(LAST[rank]),
                **tolerance,
            ),
            Case(
                "conv",
                [moved, weight.transpose(LAST[rank]), bias],
                {**attributes, "data_layout": "N*C", "kernel_layout": "O*I"},
                exact.transpose(LAST[rank]),
                **tolerance,
            ),
            Case(
                "conv",
                [moved, weight, None],
                {**attributes, "data_layout": "N*C"},
                plain.transpose(LAST[rank]),
                **tolerance,
            ),
        ]
    half = [a.astype(np.float16) for a in (f32(1, 8, 6, 6), f32(4, 8, 3, 3, seed=1), f32(4, seed=2))]
    exact = onnx_node("Conv", [a.astype(np.float32) for a in half])
    made.append(Case("conv", half, {}, exact, rtol=5e-3, atol=5e-3))
    x, weight = ints(-128, 128, 1, 4, 6, 6, dtype=np.int8), ints(-128, 128, 3, 4, 3, 3, dtype=np.int8)
    exact = onnx_node("Conv", [x.astype(np.float32), weight.astype(np.float32)], {"pads": [1, 1, 1, 1]})
    made.append(Case("conv", [x, weight, None], {"padding": (1, 1, 1, 1), "out_dtype": "i32"}, exact.astype(np.int32)))
    x = ints(0, 256, 1, 4, 6, 6, dtype=np.uint8)
    exact = onnx_node("Conv", [x.astype(np.float32), weight.astype(np.float32)])
    made.append(Case("conv", [x, weight, None], {"out_dtype": "i32"}, exact.astype(np.int32)))
    return made


# x, weight (I, O / groups, *), attributes
TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    ((2, 3, 4, 5), (3, 2, 3, 3), {"strides": (2, 2), "padding": (1, 1, 1, 1), "output_padding": (1, 1)}),
    ((1, 4, 5, 5), (4, 3, 2, 2), {"strides": (2, 2)}),
    ((1, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "strides": (2, 1)}),
    ((1, 4, 5, 5), (4, 3, 3, 2), {"groups": 2, "dilations": (2, 1), "padding": (1, 0, 2, 1)}),
    ((1, 2, 9), (2, 3, 4), {"strides": (3,), "padding": (3, 3)}),
    ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), {"strides": (2, 2, 2)}),
    ((1, 3, 6, 6), (3, 2, 1, 1), {"strides": (2, 2), "padding": (1, 1, 0, 0)}),
    ((1, 4, 4, 5), (4, 3, 5, 4), {"strides": (3, 2), "padding": (4, 1, 2, 3), "groups": 2}),
    ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": (2, 2), "dilations": (2, 1), "output_padding": (1, 0)}),
    ((1, 2, 4, 4), (2, 2, 2, 3), {"strides": (3, 4), "output_padding": (2, 3)}),
]


def transposed_cases() -> list[Case]:
    made = []
    for shape, weight_shape, attributes in TRANSPOSED:
        out = weight_shape[1] * attributes.get("groups", 1)
        x, weight, bias = f32(*shape), f32(*weight_shape, seed=1), f32(out, seed=2)
        exact = onnx_node("ConvTranspose", [x, weight, bias], onnx_attributes(attributes))
        last = LAST[len(shape)]
        made += [
            Case("conv_transpose", [x, weight, bias], attributes, exact, rtol=1e-4, atol=1e-4),
            Case(
                "conv_transpose",
                [x.transpose(last), weight, bias],
                {**attributes, "data_layout": "N*C"},
                exact.transpose(last),
                rtol=1e-4,
                atol=1e-4,
            ),
        ]
    return made


POOL: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 8), {"kernel": (2, 2), "strides": (2, 2)}),
    ((2, 3, 9, 9), {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ((1, 2, 7, 10), {"kernel": (3, 2), "strides": (2, 3), "padding": (1, 0, 0, 1)}),
    ((1, 2, 10, 10), {"kernel": (3, 3), "strides": (2, 2), "ceil_mode": True}),
    ((1, 2, 3, 5), {"kernel": (9, 4), "strides": (9, 3), "ceil_mode": True}),
    ((1, 2, 4, 2), {"kernel": (4, 5), "strides": (3, 4), "padding": (1, 1, 1, 1), "ceil_mode": True}),
    ((1, 2, 2, 3), {"kernel": (320, 320), "strides": (320, 320), "ceil_mode": True}),
    ((1, 2, 11, 12), {"kernel": (2, 3), "dilations": (3, 2), "padding": (1, 2, 1, 2)}),
    ((1, 4, 13), {"kernel": (4,), "strides": (3,), "padding": (1, 2)}),
    ((1, 2, 5, 6, 7), {"kernel": (2, 2, 3), "strides": (2, 2, 2)}),
]


def pool_cases() -> list[Case]:
    made = []
    for shape, attributes in POOL:
        x = f32(*shape)
        last = LAST[len(shape)]
        plain = onnx_attributes(attributes)
        for name, kind, extra in (
            ("max_pool", "MaxPool", {}),
            ("avg_pool", "AveragePool", {"count_include_pad": False}),
            ("avg_pool", "AveragePool", {"count_include_pad": True}),
            ("lp_pool", "LpPool", {"p": 2}),
            ("lp_pool", "LpPool", {"p": 1}),
            ("lp_pool", "LpPool", {"p": 3}),
        ):
            exact = onnx_node(kind, [x], {**plain, **onnx_attributes(extra)}, opset=19)
            both = {**attributes, **extra}
            made.append(Case(name, [x], both, exact))
            made.append(Case(name, [x.transpose(last)], {**both, "data_layout": "N*C"}, exact.transpose(last)))
        exact = onnx_node("MaxPool", [x], plain, outputs=2)
        moved = [each.transpose(last) for each in exact]
        made.append(Case("max_pool_with_indices", [x], attributes, exact))
        made.append(Case("max_pool_with_indices", [x.transpose(last)], {**attributes, "data_layout": "N*C"}, moved))
        if not attributes.get("ceil_mode"):
            column = {**plain, "storage_order": 1}
            exact = onnx_node("MaxPool", [x], column, outputs=2)
            made.append(Case("max_pool_with_indices", [x], {**attributes, "storage_order": 1}, exact))
            both = {**attributes, "storage_order": 1, "data_layout": "N*C"}
            moved = [each.transpose(last) for each in exact]
            made.append(Case("max_pool_with_indices", [x.transpose(last)], both, moved))
    numbers = ints(-100, 100, 1, 2, 6, 6, dtype=np.int8)
    attributes = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
    exact = onnx_node("MaxPool", [numbers.astype(np.float32)], onnx_attributes(attributes)).astype(np.int8)
    made.append(Case("max_pool", [numbers], attributes, exact))
    low = np.full((1, 1, 4, 4), -np.inf, np.float32)
    attributes = {"kernel": (2, 2), "strides": (2, 2)}
    places = np.array([[[[0, 2], [8, 10]]]])
    made.append(Case("max_pool_with_indices", [low], attributes, [low[:, :, :2, :2], places], note="all -inf"))
    return made


RUNNER = Runner(conv_cases() + transposed_cases() + pool_cases())


@pytest.mark.sample(12)
@RUNNER.parametrize
def test_windows(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)
