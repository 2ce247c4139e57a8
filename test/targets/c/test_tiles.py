"""The rule of target `c`: any sizes of a product, and its primitives given back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from onnx_models import F32, make_model, node

import mirlo
from mirlo.tools.explain.model import explain_model

SIZES = ((1, 1, 1), (2, 0, 9), (3, 4, 8), (5, 7, 31), (2, 8, 32), (4, 9, 33), (3, 13, 70), (0, 3, 5))
"""Rows, sums and columns: below, at and above the steps and the tile of the rule."""


@needs_c_compiler
def test_dynamic_sizes_have_tails() -> None:
    model = make_model(
        [node("MatMul", "x y", "m"), node("Relu", "m", "z")], {"x": (F32, ["m", "k"]), "y": (F32, ["k", "n"])}, ["z"]
    )
    executable, rng = mirlo.compile(model, "c", cache=False), np.random.default_rng(0)
    for rows, depth, columns in SIZES:
        x, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
        np.testing.assert_array_equal(executable(x, y), np.maximum(x @ y, 0), err_msg=f"{rows, depth, columns}")


@needs_c_compiler
def test_primitives_of_the_rule_can_be_given_back() -> None:
    weight = np.random.default_rng(0).standard_normal((16, 3, 3, 3), np.float32)
    model = make_model(
        [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")],
        {"x": (F32, [1, 3, 9, 9])},
        ["y"],
        {"w": weight},
    )
    kernels = {kernel.name: kernel.schedule for kernel in explain_model(model, target="c").kernels}
    primitives = {name: made.trace for name, made in kernels.items() if made and made.rule.name == "accumulator_tiles"}
    assert [said.primitive for trace in primitives.values() for said in trace].count("unswitch") == 1
    ours, theirs = (mirlo.compile(model, "c", schedules=each, cache=False) for each in ({}, primitives))
    assert ours.artifact.code == theirs.artifact.code
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 9), np.float32)
    np.testing.assert_array_equal(ours(x), theirs(x))


@needs_c_compiler
@pytest.mark.parametrize("pads", [(0, 0, 3, 0), (1, 2, 0, 0), (0, 0, 0, 0), (2, 1, 1, 2)], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)], ids=str)
def test_windows_of_run_time_size(pads: tuple[int, ...], strides: tuple[int, int]) -> None:
    """Edges and ends of tiles are decided by one branch: where it is not taken, elements of the edges may be inside."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        main (float[2,3,4,5] x, float[1,3,a,b] w, float[1] bias) => (float[2,1,h,v] y)
        {{ y = Conv <pads = {list(pads)}, strides = {list(strides)}> (x, w, bias) }}""")
    compiled = mirlo.compile(model, "c", cache=False)
    rng = np.random.default_rng(0)
    x, bias = rng.integers(-4, 5, (2, 3, 4, 5)).astype("f4"), np.full(1, 7, "f4")
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    for size in ((4, 2), (1, 1), (3, 3), (4, 5), (2, 4)):
        w = rng.integers(-4, 5, (1, 3, *size)).astype("f4")
        windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(2, 3))[
            :, :, :: strides[0], :: strides[1]
        ]
        wanted = np.einsum("nchvij,ocij->nohv", windows, w) + 7
        np.testing.assert_array_equal(compiled(x, w, bias), wanted, err_msg=str(size))
