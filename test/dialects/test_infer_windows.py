"""Shape inference of convolutions and pooling against ONNX Runtime on random cases."""

from __future__ import annotations

import random
from typing import Any

import pytest
from inference import (
    agree,
    infer,
    infer_or_none,
    onnx_shape,
    random_shape,
    shapes,
    zeros,
)


def windows(rng: random.Random, count: int) -> dict[str, Any]:
    """Return random strides, padding and dilations; some are left out."""
    full = {
        "strides": random_shape(rng, count, high=3),
        "padding": random_shape(rng, 2 * count, low=0, high=2),
        "dilations": random_shape(rng, count, high=2),
    }
    return {key: value for key, value in full.items() if rng.random() < 0.8}


def as_onnx(attributes: dict[str, Any]) -> dict[str, Any]:
    names = {"padding": "pads", "kernel": "kernel_shape", "groups": "group"}
    return {names.get(key, key): int(value) if isinstance(value, bool) else value for key, value in attributes.items()}


@pytest.mark.parametrize("seed", range(60))
def test_conv(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    groups, per_group, out = rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2)
    x = (rng.randint(1, 2), groups * per_group, *random_shape(rng, count, low=2, high=9))
    weight = (groups * out, per_group, *random_shape(rng, count, high=4))
    attributes = {**windows(rng, count), "groups": groups}
    if not agree(
        lambda: onnx_shape("Conv", [zeros(x), zeros(weight)], **as_onnx(attributes)),
        lambda: shapes(infer("conv", x, weight, None, **attributes)),
        (x, weight, attributes),
    ):
        return
    expected = shapes(infer("conv", x, weight, (groups * out,), **attributes))
    last = infer(
        "conv",
        (x[0], *x[2:], x[1]),
        (*weight[2:], weight[1], weight[0]),
        None,
        data_layout="N*C",
        kernel_layout="*IO",
        **attributes,
    )
    assert shapes(last) == (expected[0], *expected[2:], expected[1])


@pytest.mark.parametrize("seed", range(60))
def test_conv_transpose(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 2)
    groups, per_group, out = rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2)
    x = (rng.randint(1, 2), groups * per_group, *random_shape(rng, count, low=2, high=6))
    weight = (groups * per_group, out, *random_shape(rng, count, high=4))
    attributes = {**windows(rng, count), "groups": groups}
    strides = attributes.get("strides", (1,) * count)
    attributes["output_padding"] = tuple(rng.randint(0, stride - 1) for stride in strides)
    expected = infer_or_none("conv_transpose", x, weight, None, **attributes)
    if expected is not None:
        assert onnx_shape("ConvTranspose", [zeros(x), zeros(weight)], **as_onnx(attributes)) == expected


@pytest.mark.parametrize("seed", range(120))
def test_pool(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    x = (1, rng.randint(1, 2), *random_shape(rng, count, low=2, high=11))
    attributes: dict[str, Any] = {**windows(rng, count), "kernel": random_shape(rng, count, high=4)}
    attributes["ceil_mode"] = rng.random() < 0.7
    if max(attributes.get("padding", (0,))) >= min(attributes["kernel"]):
        del attributes["padding"]  # ONNX Runtime refuses it, whatever the dilation makes of the window
    for name, op_type in (("max_pool", "MaxPool"), ("avg_pool", "AveragePool")):
        found = infer_or_none(name, x, **attributes)
        if found is not None:
            assert onnx_shape(op_type, [zeros(x)], **as_onnx(attributes)) == found, (x, attributes)
    if "dilations" in attributes:
        del attributes["dilations"]
    both = infer_or_none("max_pool_with_indices", x, **attributes)
    assert both is None or both == [infer_or_none("max_pool", x, **attributes)] * 2


def counted_windows(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], ceil_mode: bool) -> int:
    """Windows counted one by one."""
    extent = (kernel - 1) * dilation + 1
    starts = range(-pads[0], size if ceil_mode else size + pads[1], stride)
    reach = stride - 1 if ceil_mode else 0
    return sum(start + extent <= size + pads[1] + reach for start in starts)


def test_pool_counts_windows() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        kernel, dilation = rng.randint(1, 4), rng.randint(1, 3)
        extent = (kernel - 1) * dilation + 1
        size, stride = rng.randint(1, 12), rng.randint(1, 5)
        pads = (rng.randint(0, extent - 1), rng.randint(0, extent - 1))
        for ceil_mode in (False, True):
            if size + sum(pads) + (stride - 1 if ceil_mode else 0) < extent:
                continue
            attributes = {"kernel": (kernel,), "strides": (stride,), "padding": pads, "dilations": (dilation,)}
            found = shapes(infer("max_pool", (1, 1, size), ceil_mode=ceil_mode, **attributes))[2]
            assert found == counted_windows(size, kernel, stride, dilation, pads, ceil_mode), (size, attributes)


def test_windows_of_deformable_convolutions() -> None:
    """Without strides and dilations they are 1, which is also the least."""
    x, weight, offset = (2, 3, 9, 8), (4, 3, 3, 2), (2, 12, 7, 7)
    plain = infer("deform_conv", x, weight, offset, None, None)
    assert plain.shape == (2, 4, 7, 7)
    given = infer("deform_conv", x, weight, offset, None, None, strides=(1, 1), dilations=(1, 1))
    assert given.shape == plain.shape
