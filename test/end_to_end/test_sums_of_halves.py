"""Sums of 16-bit floats are computed in f32, and rounded once: within one unit of the exact sum."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx_models import make_model, node

import mirlo

DTYPES = {"f16": (np.float16, 2.0**-11), "bf16": (ml_dtypes.bfloat16, 2.0**-8)}
"""Element types, with half of a unit in the last place of one."""
SHAPES = [
    (1, 1, 1),
    (7, 4, 1),
    (1, 4, 7),
    (3, 5, 4),
    (8, 64, 8),
    (1, 300, 1),
    (2, 1, 3),
    (64, 512, 1),
    (1, 512, 64),
    (300, 40, 1),
]
"""Rows, terms and columns of products."""


def _computed(model: object, target: str, feeds: Mapping[str, np.ndarray], level: int) -> np.ndarray:
    found = mirlo.compile(model, target, cache=False, opt_level=level).run(feeds)["y"]
    return np.asarray(found).astype(np.float64)


@pytest.mark.sample(6)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("target", ["llvm", "c", "spirv"])
@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Conv", "ReduceSum"])
def test_sums_are_rounded_once(operator: str, target: str, kind: str, shape: tuple[int, int, int], level: int) -> None:
    """Terms cancel in many of them: what is lost before the last rounding shows in the sum."""
    dtype, half = DTYPES[kind]
    rng = np.random.default_rng(math.prod(shape))
    rows, terms, columns = shape
    a, b = (rng.standard_normal(each).astype(dtype) for each in ((rows, terms), (terms, columns)))
    wide = a.astype(np.float64), b.astype(np.float64)
    if operator == "Conv":
        feeds = {"a": a.reshape(1, 1, rows, terms), "b": b.T.reshape(columns, 1, 1, terms)}
        nodes = [node("Conv", "a b", "y")]
        exact, size = (x @ y for x, y in (wide, map(np.abs, wide)))
        exact, size = (each.T.reshape(1, columns, rows, 1) for each in (exact, size))
    elif operator == "ReduceSum":
        feeds, nodes = {"a": a}, [node("ReduceSum", "a axes", "y", keepdims=0)]
        exact, size = wide[0].sum(1), np.abs(wide[0]).sum(1)
    else:
        feeds, nodes = {"a": a, "b": b}, [node(operator, "a b", "y")]
        exact, size = (x @ y for x, y in (wide, map(np.abs, wide)))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = {name: (element, array.shape) for name, array in feeds.items()}
    model = make_model(
        nodes, inputs, ["y"], {"axes": np.array([1], np.int64)} if operator == "ReduceSum" else {}, opset=22,
        output_types={"y": (element, exact.shape)},
    )  # fmt: skip
    bound = 2 * half * np.abs(exact) + terms * 2.0**-24 * size + float(ml_dtypes.finfo(dtype).smallest_subnormal)
    assert (np.abs(_computed(model, target, feeds, level) - exact) <= bound).all()
