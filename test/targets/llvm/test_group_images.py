"""Gradients of weights, and Winograd's convolutions, of large batches: groups of images, against sums in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.llvm import group_images
from mirlo.targets.llvm.group_images import images_at_once


@pytest.mark.parametrize(
    ("batch", "image_bytes", "least", "wanted"),
    [
        (0, 1 << 30, 0, 0), (1, 1 << 30, 0, 1), (7, 1 << 20, 0, 1), (12, 1 << 19, 0, 4), (12, 0, 0, 12),
        (12, 1 << 17, 0, 12), (12, 1 << 20, 1 << 30, 12), (12, 1 << 20, 6 << 20, 6),
    ],
)  # fmt: skip
def test_images_of_a_group(batch: int, image_bytes: int, least: int, wanted: int) -> None:
    assert images_at_once(batch, image_bytes, least) == wanted


def _text(kinds: list[str], attributes: str, window: int) -> str:
    return f"""func.func @main(%x: {kinds[0]}, %w: {kinds[1]}, %g: {kinds[2]}) -> ({kinds[2]}, {kinds[1]}) {{
      %0 = "relax.conv"(%x, %w) {{{attributes}}} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      %1 = "relax.conv_weight_gradient"(%x, %g) {{window = array<i64: {window}, {window}>, {attributes}}}
        : ({kinds[0]}, {kinds[2]}) -> {kinds[1]}
      return %0, %1 : {kinds[2]}, {kinds[1]}
    }}"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "out", "window", "stride", "pad"),
    [
        ((6, 9, 10, 16), 16, 3, 1, 1), ((5, 8, 8, 16), 32, 3, 1, 0), ((4, 16, 16, 32), 16, 3, 1, 1),
        ((1, 9, 9, 16), 16, 3, 1, 1),
        ((6, 9, 10, 3), 16, 3, 2, 1), ((4, 11, 7, 5), 6, 5, 3, 2),
        ((4, 16, 16, 16), 16, 1, 2, 0), ((4, 8, 8, 16), 16, 1, 1, 0),
    ],
)  # fmt: skip
def test_groups_of_images(
    monkeypatch: Any, shape: tuple[int, ...], out: int, window: int, stride: int, pad: int, threads: int
) -> None:
    """A convolution whose weight is an input, and the gradient of that weight, image by image and as a whole."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(size, dtype=np.float32) for size in (shape, (window, window, shape[3], out)))
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (window, window), (1, 2))[:, ::stride, ::stride]
    want = np.einsum("nhwcij,ijco->nhwo", windows, w)
    gradient = rng.standard_normal(want.shape, dtype=np.float32)
    by_weight = np.einsum("nhwcij,nhwo->ijco", windows, gradient)
    kinds = [f"tensor<{'x'.join(map(str, array.shape))}xf32>" for array in (x, w, gradient)]
    attributes = f"""strides = array<i64: {stride}, {stride}>, padding = array<i64: {pad}, {pad}, {pad}, {pad}>,
        data_layout = "N*C", kernel_layout = "*IO\""""
    arenas = []
    for most in (1, group_images.AT_ONCE):
        monkeypatch.setattr(group_images, "AT_ONCE", most)
        with make_context(), ir.Location.unknown():
            executable = mirlo.compile(ir.Module.parse(_text(kinds, attributes, window)), threads=threads, cache=False)
        for got, expected in zip(executable(x, w, gradient), (want, by_weight), strict=True):
            assert np.abs(got - expected).max() <= 2e-5 * np.abs(expected).max()
        arenas.append(executable.artifact.arena_bytes)
    if shape[0] > 1 and window > 1:
        assert arenas[0] < arenas[1]
    assert arenas[0] <= arenas[1]
