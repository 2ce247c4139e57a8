"""A detector with a YOLO head for images of any size, as PyTorch's exporter writes it.

Sizes, anchors and strides of the levels are computed from the shape of the image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .nets import Net

BINS, CLASSES = 16, 80
"""Numbers for each side of a box, and classes."""
STRIDES = (8, 16, 32)
WIDTHS = (32, 64, 128, 256, 256)
"""Channels of the backbone's levels, each of half the size of the one before."""


def detector() -> Any:
    """Build the model; its input is [1, 3, height, width], its result [1, 4 + CLASSES, anchors]."""
    net = Net("detector")
    image = net.input("x", (1, 3, "height", "width"))
    levels, x, channels = [], image, 3
    for width in WIDTHS:
        x = _silu(net, net.conv(x, channels, width, 3, 2))
        short = x
        x = net.op("Add", short, _silu(net, net.conv(_silu(net, net.conv(x, width, width, 3)), width, width, 3)))
        levels.append((x, width))
        channels = width
    shape = net.op("Shape", image)
    sides = [net.op("Gather", shape, net.constant(np.int64(axis)), axis=0) for axis in (2, 3)]
    rows, centers, strides = [], [], []
    for (level, width), stride in zip(levels[-3:], STRIDES, strict=True):
        outputs = 4 * BINS + CLASSES
        y = net.conv(_silu(net, net.conv(level, width, 64, 3)), 64, outputs, 1, norm=False)
        rows.append(net.reshape(y, 1, outputs, -1))
        down, across = (_after_strides(net, side, stride) for side in sides)
        centers.append(_centers(net, down, across))
        count = net.op("Unsqueeze", net.op("Mul", down, across), net.constant(np.array([0])))
        one = net.constant(np.array([1], np.int64))
        strides.append(net.op("Expand", net.constant(np.float32(stride)), net.op("Concat", count, one, axis=0)))
    every = net.op("Concat", *rows, axis=2)
    boxes, scores = (
        net.op("Slice", every, *(net.constant(np.array([n], np.int64)) for n in (begin, end, 1)))
        for begin, end in ((0, 4 * BINS), (4 * BINS, 4 * BINS + CLASSES))
    )
    anchors = net.op("Transpose", net.op("Concat", *centers, axis=0), perm=[1, 0])
    scale = net.op("Transpose", net.op("Concat", *strides, axis=0), perm=[1, 0])
    shares = net.op("Softmax", net.op("Transpose", net.reshape(boxes, 1, 4, BINS, -1), perm=[0, 2, 1, 3]), axis=1)
    bins = net.constant(np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
    distances = net.reshape(net.op("Conv", shares, bins), 1, 4, -1)
    low, high = (
        net.op("Slice", distances, *(net.constant(np.array([n], np.int64)) for n in (begin, begin + 2, 1)))
        for begin in (0, 2)
    )
    first, last = net.op("Sub", anchors, low), net.op("Add", anchors, high)
    middle = net.op("Div", net.op("Add", first, last), net.constant(np.float32(2)))
    box = net.op("Mul", net.op("Concat", middle, net.op("Sub", last, first), axis=1), scale)
    return net.model(net.op("Concat", box, net.op("Sigmoid", scores), axis=1), (1, 4 + CLASSES, "anchors"))


def _silu(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Sigmoid", x))


def _after_strides(net: Net, side: str, stride: int) -> str:
    """Return the size of a side after convolutions of stride 2, one after the other."""
    one, two = net.constant(np.int64(1)), net.constant(np.int64(2))
    while stride > 1:
        side = net.op("Add", net.op("Div", net.op("Sub", side, one), two), one)
        stride //= 2
    return side


def _centers(net: Net, down: str, across: str) -> str:
    """Return the centers of the cells of a level, [cells, 2]: across, down."""
    none, one, half = (net.constant(array) for array in (np.int64(0), np.int64(1), np.float32(0.5)))
    places = [
        net.op("Add", net.op("Cast", net.op("Range", none, size, one), to=TensorProto.FLOAT), half)
        for size in (down, across)
    ]
    sizes = [net.op("Unsqueeze", size, net.constant(np.array([0]))) for size in (down, across)]
    both = net.op("Concat", *sizes, axis=0)
    columns = net.op("Expand", net.reshape(places[1], 1, -1), both)
    rows = net.op("Expand", net.reshape(places[0], -1, 1), both)
    last = net.constant(np.array([-1]))
    pairs = net.op("Concat", net.op("Unsqueeze", columns, last), net.op("Unsqueeze", rows, last), axis=-1)
    return net.reshape(pairs, -1, 2)
