"""Convolutions over images whose height and width are known at run time only: register tiles, borders included."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx_models import F32, make_model, node
from schedules import scheduled

import mirlo
from mirlo.tools.explain.model import explain_model

RNG = np.random.default_rng(0)
SIZES = [(1, 7, 7), (2, 7, 8), (1, 8, 17), (2, 15, 16), (1, 33, 30), (1, 14, 71)]
"""Below a tile, a tile, and tiles with a rest of every kind."""
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "3x3": (32, 48, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "3x3, every second": (32, 48, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "7x7 of colours": (3, 32, {"kernel_shape": [7, 7], "pads": [3, 3, 3, 3], "strides": [2, 2]}),
    "1x1, every second": (32, 48, {"kernel_shape": [1, 1], "strides": [2, 2]}),
    "5x5, every third, one side": (8, 20, {"kernel_shape": [5, 5], "pads": [0, 0, 2, 3], "strides": [3, 3]}),
    "dilated": (16, 16, {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    "groups": (32, 64, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 4}),
    "depthwise": (24, 24, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 24}),
}


def model_of(name: str) -> Any:
    channels, out, attributes = CASES[name]
    shape = (out, channels // attributes.get("group", 1), *attributes["kernel_shape"])
    weight = RNG.standard_normal(shape, dtype=np.float32)
    return make_model(
        [node("Conv", "x w", "y", **attributes)], {"x": (F32, ("n", channels, "h", "v"))}, ["y"], {"w": weight}
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", CASES)
def test_images_of_any_size(name: str) -> None:
    model = model_of(name)
    f = mirlo.compile(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count, height, width in SIZES:
        x = RNG.standard_normal((count, CASES[name][0], height, width), dtype=np.float32)
        (expected,) = session.run(None, {"x": x})
        # Winograd's tiles round by up to so much of the largest result.
        slack = max(1e-4, 2e-5 * float(np.abs(expected).max()))
        np.testing.assert_allclose(f(x), expected, rtol=1e-4, atol=slack, err_msg=str((count, height, width)))


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", CASES)
def test_no_loop_of_scalars(name: str) -> None:
    kernels = explain_model(model_of(name)).kernels
    rules = {kernel.name: kernel.schedule.rule.name for kernel in kernels if kernel.schedule is not None}
    assert rules.get("winograd_input") == "winograd_input" or rules["conv"] in ("contraction", "window"), rules


WINDOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "depthwise": ("Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 24}),
    "depthwise, every second": ("Conv", {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2], "strides": [2, 2], "group": 24}),
    "average": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_what_is_outside_of_an_image_is_loaded_from_its_start(name: str) -> None:
    """A masked load of memory that is not mapped takes hundreds of cycles though no lane is loaded."""
    operator, attributes = WINDOWED[name]
    weights = {"w": RNG.standard_normal((24, 1, *attributes["kernel_shape"]), dtype=np.float32)}
    nodes = [node(operator, "x w" if operator == "Conv" else "x", "c", **attributes), node("Relu", "c", "y")]
    model = make_model(nodes, {"x": (F32, (1, 24, "h", "v"))}, ["y"], weights if operator == "Conv" else {})
    count = 0
    for function in scheduled(model, {}, "llvm")[0].split("func.func"):
        values = dict(re.findall(r"^ *(%\w+) = (.*)", function, re.MULTILINE))
        for load in filter(re.compile("vector.maskedload").match, values.values()):
            index, mask = re.findall(r"%\w+", load)[1:3]
            if leaves_out_all(mask, values):
                count += 1
                shared = re.match(r"arith.addi (%\w+)", values[index])
                chosen = values[shared.group(1) if shared else index]
                assert chosen.startswith("arith.select"), f"{load}: {chosen}"
    assert count


def leaves_out_all(mask: str, values: dict[str, str]) -> bool:
    """Return whether a mask has a condition that all lanes share."""
    first, *operands = re.findall(r"[%.\w]+", values[mask])
    return first == "vector.broadcast" or (
        first == "arith.andi" and any(leaves_out_all(each, values) for each in operands if each in values)
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("dims", [("n", 20, 18), (1, "h", "w"), ("n", "h", "w")])
def test_winograd(dims: tuple[int | str, ...]) -> None:
    """Tiles of images of any number and size: none of them whole, one, several, with what follows the convolution."""
    weight, bias = (RNG.standard_normal(shape, dtype=np.float32) / 8 for shape in ((48, 32, 3, 3), (48,)))
    nodes = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    batch, height, width = dims
    model = make_model(nodes, {"x": (F32, (batch, 32, height, width))}, ["y"], {"w": weight, "b": bias})
    compiled = mirlo.compile(model, cache=False)
    assert any("winograd" in kernel.symbol for kernel in compiled.artifact.kernels)
    for n, h, w in ((1, 20, 18), (3, 20, 18), (1, 1, 1), (1, 2, 5), (1, 4, 4), (1, 9, 17), (2, 7, 30)):
        if any(isinstance(dim, int) and dim != size for dim, size in zip(dims, (n, h, w), strict=True)):
            continue
        x = RNG.standard_normal((n, 32, h, w), dtype=np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        wanted = np.maximum(np.einsum("ncyxrs,ocrs->noyx", windows, weight) + bias[:, None, None], 0)
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-4, atol=2e-4, err_msg=f"{n} {h} {w}")
