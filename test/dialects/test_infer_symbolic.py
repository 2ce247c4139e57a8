"""Symbolic inference against static inference."""

from __future__ import annotations

import random
from typing import Any

import pytest
from inference import (
    as_types,
    infer,
    random_slice,
    shapes,
)

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType

CONV = {"strides": (2, 1), "padding": (1, 0, 1, 2), "dilations": (1, 2)}
POOL = {"kernel": (3, 2), "strides": (2, 3), "padding": (1, 0, 1, 1)}
SYMBOLIC: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("add", [("n", 1, "m"), ("m",)], {}),
    ("matmul", [("b", "n", "m"), ("m", 3)], {}),
    ("matmul", [("m", "n"), ("b", 3, "m")], {"transpose_lhs": True, "transpose_rhs": True}),
    ("einsum", [[("b", "n", 3), ("b", 3, "m")]], {"equation": "bij,bjk->bik"}),
    ("conv", [("b", 3, "n", "m"), (4, 3, 3, 2), None], CONV),
    ("conv", [("b", "n", "m", 3), (3, 2, 3, 4), None], {**CONV, "data_layout": "N*C", "kernel_layout": "*IO"}),
    ("conv_transpose", [("b", 3, "n", "m"), (3, 4, 3, 2), None], CONV),
    ("max_pool", [("b", 3, "n", "m")], POOL),
    ("avg_pool", [("b", 3, "n", "m")], {**POOL, "ceil_mode": True}),
    ("lp_pool", [("b", "n", "m", 3)], {**POOL, "ceil_mode": True, "data_layout": "N*C"}),
    ("reduce_sum", [("b", "n", "m")], {"axes": (1,)}),
    ("argmax", [("b", "n", "m")], {"axis": -1}),
    ("reshape", [("b", "n", 8)], {"shape": ("n", "b*2", 4)}),
    ("permute", [("b", "n", "m")], {"axes": (2, 0, 1)}),
    ("tile", [("n", "m + 1")], {"repeats": (2, 3)}),
    ("concat", [[("b", "n"), ("b", 3), ("b", "n + m")]], {"axis": 1}),
    ("stack", [[("b", "n"), ("b", "n")]], {"axis": 1}),
    ("split", [("2*n + 3", "m")], {"axis": 0, "sizes": ("n", 3, "n")}),
    ("pad", [("n", "m")], {"pads": (1, -1, 2, 0)}),
    ("depth_to_space", [("b", 8, "n", "m")], {"block": 2}),
    ("space_to_depth", [("b", 3, "2*n", "4*m")], {"block": 2}),
    ("gather", [("n", "m"), TensorType.of(("b", 2), "i64")], {}),
    ("gather_nd", [("b", "n", "m"), TensorType.of(("b", 3, 1), "i64")], {"batch_dims": 1}),
    ("one_hot", [TensorType.of(("b", "n"), "i64"), (2,)], {"depth": 5, "axis": 1}),
    ("attention", [("b", 4, "n", 8), ("b", 2, "m", 8), ("b", 2, "m", 6), ("n", "m")], {}),
    ("topk", [("b", "n + 4")], {"k": 3}),
    ("dequantize", [TensorType.of(("n", "4*m"), "i8"), ("n", "m"), None], {"block": 4}),
    ("grid_sample", [("b", 3, "n", "m"), ("b", "m", "n", 2)], {}),
    ("shape_of", [("b", "n")], {}),
]


@pytest.mark.parametrize("name, operands, attributes", SYMBOLIC, ids=[case[0] for case in SYMBOLIC])
def test_symbolic_inference_says_what_static_inference_would(name: str, operands: Any, attributes: Any) -> None:
    symbolic = infer(name, *operands, **with_sizes(attributes, {}))
    rng = random.Random(name)
    for _ in range(30):
        sizes = {symbol: rng.randint(3, 12) for symbol in ("b", "n", "m")}
        static = infer(name, *[sized(operand, sizes) for operand in operands], **with_sizes(attributes, sizes))
        expected = [static] if isinstance(static, TensorType) else static
        found = [symbolic] if isinstance(symbolic, TensorType) else symbolic
        assert [sized(t, sizes) for t in found] == list(expected), sizes


def sized(operand: Any, sizes: dict[str, int]) -> Any:
    if operand is None:
        return None
    if isinstance(operand, list):
        return [sized(member, sizes) for member in operand]
    t = as_types(operand)
    return t.with_shape([D.substitute(dim, sizes) for dim in t.shape])


def with_sizes(attributes: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """Return the attributes with dims instead of text in shapes, and numbers instead of the symbols in them."""
    return {key: sized(value, sizes).shape if key in ("shape", "sizes") else value for key, value in attributes.items()}


@pytest.mark.parametrize("seed", range(200))
def test_symbolic_slice(seed: int) -> None:
    rng = random.Random(seed)
    attributes = random_slice(rng, 1)
    symbolic = infer("strided_slice", ("n",), **attributes)
    for size in range(12):
        expected = shapes(infer("strided_slice", (size,), **attributes))
        assert sized(symbolic, {"n": size}).shape == expected, (size, attributes, symbolic)
