"""The rule of target `c`: any sizes of a product, and its primitives given back."""

from __future__ import annotations

import numpy as np
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
