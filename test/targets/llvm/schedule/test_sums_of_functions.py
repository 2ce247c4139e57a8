"""Sums of products with lanes along K: lanes past its end add nothing, whatever the function of 0 is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import mirlo

FUNCTIONS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "clip(0)=1": ("Clip (x, one, three)", lambda x: np.clip(x, 1, 3)),
    "clip(0)=-1": ("Clip (x, minus, minus_one)", lambda x: np.clip(x, -3, -1)),
    "clip(0)=0": ("Clip (x, minus, three)", lambda x: np.clip(x, -3, 3)),
    "add": ("Add (x, three)", lambda x: x + 3),
    "exp2": ("Pow (two, x)", lambda x: 2.0**x),
    "reciprocal": ("Div (one, x)", lambda x: 1 / x),
}
SHAPES = ((3, 3), (1, 5), (17, 3), (2, 20), (1, 16), (0, 4))
"""Below, at and above one and several vectors of a sum, and no element."""


def _model(expression: str, body: str, sizes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        main ({sizes}) => (float[] y) <float one = {{1}}, float two = {{2}}, float three = {{3}}, float minus = {{-3}},
            float minus_one = {{-1}}, int64[2] axes = {{0, 1}}>
        {{ f = {expression}
           {body} }}""")


@pytest.mark.sample(3)
@pytest.mark.parametrize("cpu", ["", "znver3", "znver4"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_sums_of_squares(function: str, cpu: str) -> None:
    """Kernels for each processor are equal to their definitions; those for the host have numpy's results."""
    expression, meaning = FUNCTIONS[function]
    for rows, columns in SHAPES:
        model = _model(expression, "y = ReduceSumSquare <keepdims: int = 0> (f, axes)", f"float[{rows}, {columns}] x")
        x = np.random.default_rng(0).choice([-4, -2, -1, 1, 2, 4], (rows, columns)).astype(np.float32)
        if cpu:
            mirlo.compile(model, f"llvm{{cpu={cpu}}}", cache=False, load=False, verify=True)
            continue
        found = mirlo.compile(model, "llvm", cache=False, verify=True)(x)
        np.testing.assert_array_equal(found, np.float32((meaning(x) ** 2).sum()), err_msg=f"{rows}x{columns}")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_products_of_run_time_depth(function: str) -> None:
    expression, meaning = FUNCTIONS[function]
    model = _model(expression, "t = Transpose <perm = [1, 0]> (w)\n y = MatMul (f, t)", "float[1, k] x, float[3, k] w")
    compiled = mirlo.compile(model, "llvm", cache=False, opt_level=0, verify=True)
    for depth in (1, 5, 8, 19, 0):
        x = np.random.default_rng(0).choice([-4, -2, -1, 1, 2, 4], (1, depth)).astype(np.float32)
        w = np.random.default_rng(1).integers(-3, 4, (3, depth)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x, w), meaning(x) @ w.T, err_msg=str(depth))
