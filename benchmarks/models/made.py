"""Models that are built here, of the same families as the exported ones, and two small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from .large import LARGE
from .nets import Net


def mlp() -> Any:
    """Return layers of 784, 1024, 512, 256 and 10 on a batch of 1."""
    net = Net("mlp")
    x = net.input("x", (1, 784))
    sizes = (784, 1024, 512, 256)
    for n_in, n_out in zip(sizes, sizes[1:], strict=False):
        x = net.op("Relu", net.dense(x, n_in, n_out))
    return net.model(net.dense(x, sizes[-1], 10), (1, 10))


def lenet() -> Any:
    """LeNet-5 for digits of 28 by 28."""
    net = Net("lenet")
    x = net.input("x", (1, 1, 28, 28))
    for cin, cout, pads in ((1, 6, [2] * 4), (6, 16, [0] * 4)):
        x = net.op("Conv", x, net.weight((cout, cin, 5, 5)), net.weight((cout,), 0.1), kernel_shape=[5, 5], pads=pads)
        x = net.op("MaxPool", net.op("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    x = net.reshape(x, 1, 400)
    for n_in, n_out in ((400, 120), (120, 84)):
        x = net.op("Relu", net.dense(x, n_in, n_out))
    return net.model(net.dense(x, 84, 10), (1, 10))


def _head(net: Net, x: str, channels: int) -> Any:
    x = net.reshape(net.op("GlobalAveragePool", x), 1, channels)
    return net.model(net.dense(x, channels, 1000), (1, 1000))


def _stem(net: Net) -> str:
    x = net.input("x", (1, 3, 224, 224))
    x = net.op("Relu", net.conv(x, 3, 64, 7, 2))
    return net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def resnet18() -> Any:
    """Build basic blocks: two 3×3 convolutions and a shortcut."""
    net = Net("resnet18")
    x, cin = _stem(net), 64
    for cout, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            y = net.op("Relu", net.conv(x, cin, cout, 3, stride))
            y = net.conv(y, cout, cout, 3)
            short = x if cin == cout and stride == 1 else net.conv(x, cin, cout, 1, stride)
            x, cin = net.op("Relu", net.op("Add", y, short)), cout
    return _head(net, x, 512)


def resnext50() -> Any:
    """Return bottlenecks whose 3×3 convolutions have 32 groups."""
    net = Net("resnext50")
    x, cin = _stem(net), 64
    for width, count, first in ((128, 3, 1), (256, 4, 2), (512, 6, 2), (1024, 3, 2)):
        for block in range(count):
            stride = first if block == 0 else 1
            y = net.op("Relu", net.conv(x, cin, width, 1))
            y = net.op("Relu", net.conv(y, width, width, 3, stride, groups=32))
            y = net.conv(y, width, 2 * width, 1)
            short = x if cin == 2 * width and stride == 1 else net.conv(x, cin, 2 * width, 1, stride)
            x, cin = net.op("Relu", net.op("Add", y, short)), 2 * width
    return _head(net, x, 2048)


def vgg11() -> Any:
    """Plain 3×3 convolutions, then layers of 4,096."""
    net = Net("vgg11")
    x, cin = net.input("x", (1, 3, 224, 224)), 3
    for cout, count in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(count):
            x, cin = net.op("Relu", net.conv(x, cin, cout, 3, norm=False)), cout
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.reshape(x, 1, 512 * 49)
    for n_in in (512 * 49, 4096):
        x = net.op("Relu", net.dense(x, n_in, 4096))
    return net.model(net.dense(x, 4096, 1000), (1, 1000))


def efficientnet() -> Any:
    """EfficientNet-B0: inverted bottlenecks, SiLU as x·sigmoid(x), squeeze and excitation."""
    net = Net("efficientnet")

    def silu(x: str) -> str:
        return net.op("Mul", x, net.op("Sigmoid", x))

    x, cin = silu(net.conv(net.input("x", (1, 3, 224, 224)), 3, 32, 3, 2)), 32
    stages = ((1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1),
              (6, 192, 4, 5, 2), (6, 320, 1, 3, 1))  # fmt: skip
    for widen, cout, count, size, first in stages:
        for block in range(count):
            stride, wide = first if block == 0 else 1, cin * widen
            y = silu(net.conv(x, cin, wide, 1)) if widen > 1 else x
            y = silu(net.conv(y, wide, wide, size, stride, groups=wide))
            squeezed = silu(net.conv(net.op("GlobalAveragePool", y), wide, max(1, cin // 4), 1, norm=False))
            gate = net.op("Sigmoid", net.conv(squeezed, max(1, cin // 4), wide, 1, norm=False))
            y = net.conv(net.op("Mul", y, gate), wide, cout, 1)
            x = net.op("Add", x, y) if stride == 1 and cin == cout else y
            cin = cout
    return _head(net, silu(net.conv(x, 320, 1280, 1)), 1280)


def _encoder(name: str, layers: int, width: int, heads: int, length: int, shared: bool, embedding: int) -> Any:
    """Return BERT's encoder on token ids and a mask; `shared` uses one layer's weights for all."""
    net = Net(name)
    ids = net.input("input_ids", (1, length), TensorProto.INT64)
    mask = net.input("attention_mask", (1, length), TensorProto.INT64)
    x = net.op("Gather", net.weight((30522, embedding), 0.05), ids)
    x = net.op("Add", x, net.weight((1, length, embedding), 0.05))
    if embedding != width:
        x = net.dense(x, embedding, width)
    x = net.layer_norm(x, width)
    kept = net.op("Cast", net.reshape(mask, 1, 1, 1, length), to=TensorProto.FLOAT)
    dropped = net.op("Mul", net.op("Sub", net.constant(np.float32(1)), kept), net.constant(np.float32(-1e4)))
    each, first = width // heads, 0
    for layer in range(layers):
        at = len(net.weights)
        if shared and layer:
            net.weights, kept_weights = net.weights[:first], net.weights
        else:
            first, kept_weights = at, net.weights

        def part(x: str, order: list[int]) -> str:
            return net.op("Transpose", net.reshape(net.dense(x, width, width), 1, length, heads, each), perm=order)

        q, k, v = part(x, [0, 2, 1, 3]), part(x, [0, 2, 3, 1]), part(x, [0, 2, 1, 3])
        scores = net.op("Div", net.op("MatMul", q, k), net.constant(np.float32(each**0.5)))
        weights = net.op("Softmax", net.op("Add", scores, dropped), axis=-1)
        mixed = net.op("Transpose", net.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        mixed = net.dense(net.reshape(mixed, 1, length, width), width, width)
        x = net.layer_norm(net.op("Add", x, mixed), width)
        wide = net.dense(net.gelu(net.dense(x, width, 4 * width)), 4 * width, width)
        x = net.layer_norm(net.op("Add", x, wide), width)
        if shared and layer:
            net.weights = kept_weights
    return net.model(x, (1, length, width))


def distilbert() -> Any:
    """Six layers of 768."""
    return _encoder("distilbert", 6, 768, 12, 128, shared=False, embedding=768)


def albert() -> Any:
    """Twelve layers of 768 that share their weights, embeddings of 128."""
    return _encoder("albert", 12, 768, 12, 128, shared=True, embedding=128)


def _attention(net: Net, x: str, batch: int, length: int, width: int, heads: int, mask: str | None = None) -> str:
    """Self-attention with one product for q, k and v, as exporters of vision transformers write it."""
    each = width // heads
    joined = net.reshape(net.dense(x, width, 3 * width), batch, length, 3, heads, each)
    joined = net.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", joined, net.constant(np.int64(part)), axis=0) for part in range(3))
    q = net.op("Mul", q, net.constant(np.float32(each**-0.5)))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    if mask is not None:
        scores = net.op("Add", scores, mask)
    mixed = net.op("Transpose", net.op("MatMul", net.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return net.dense(net.reshape(mixed, batch, length, width), width, width)


def convnext() -> Any:
    """ConvNeXt-Tiny: depthwise 7×7 convolutions, layer norms and two products with channels last."""
    net = Net("convnext")
    channels_last, channels_first = [0, 2, 3, 1], [0, 3, 1, 2]

    def patches(x: str, cin: int, cout: int, size: int) -> str:
        return net.op("Conv", x, net.weight((cout, cin, size, size)), net.weight((cout,), 0.1), strides=[size, size])

    def norm(x: str, width: int) -> str:
        normed = net.layer_norm(net.op("Transpose", x, perm=channels_last), width)
        return net.op("Transpose", normed, perm=channels_first)

    widths, x = (96, 192, 384, 768), net.input("x", (1, 3, 224, 224))
    x = norm(patches(x, 3, 96, 4), 96)
    for stage, (width, count) in enumerate(zip(widths, (3, 3, 9, 3), strict=True)):
        if stage:
            x = patches(norm(x, width // 2), width // 2, width, 2)
        for _ in range(count):
            kernel, bias = net.weight((width, 1, 7, 7)), net.weight((width,), 0.1)
            y = net.op("Conv", x, kernel, bias, group=width, pads=[3] * 4)
            y = net.layer_norm(net.op("Transpose", y, perm=channels_last), width)
            y = net.dense(net.gelu(net.dense(y, width, 4 * width)), 4 * width, width)
            y = net.op("Mul", net.weight((width, 1, 1), 0.1), net.op("Transpose", y, perm=channels_first))
            x = net.op("Add", y, x)
    x = net.reshape(norm(net.op("GlobalAveragePool", x), 768), 1, 768)
    return net.model(net.dense(x, 768, 1000), (1, 1000))


def swin() -> Any:
    """Swin-T: attention in windows of 7×7 pixels, shifted in every second block, patches merged between stages."""
    net = Net("swin")
    window, each = 7, 32

    def cut(x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        return net.op("Slice", x, *(net.constant(np.array([value])) for value in (start, end, axis, step)))

    def roll(x: str, shift: int) -> str:
        for axis in (1, 2):
            x = net.op("Concat", cut(x, axis, shift, 2**31), cut(x, axis, 0, shift), axis=axis)
        return x

    def mask(side: int, heads: int, shift: int) -> str:
        """Relative positions, and in shifted windows what was not adjacent before."""
        windows = (side // window) ** 2
        if not shift:
            return net.weight((1, heads, window**2, window**2), 0.02)
        region = np.searchsorted([side - window, side - shift], np.arange(side), side="right")
        regions = (3 * region[:, None] + region).reshape(side // window, window, side // window, window)
        rows = regions.transpose(0, 2, 1, 3).reshape(windows, 1, window**2)
        apart = np.where(rows != rows.transpose(0, 2, 1), np.float32(-100), np.float32(0))[:, None]
        return net.op("Add", net.weight((1, heads, window**2, window**2), 0.02), net.constant(apart))

    x = net.input("x", (1, 3, 224, 224))
    x = net.op("Conv", x, net.weight((96, 3, 4, 4)), net.weight((96,), 0.1), strides=[4, 4])
    x, side, width = net.layer_norm(net.op("Transpose", x, perm=[0, 2, 3, 1]), 96), 56, 96
    for stage, count in enumerate((2, 2, 6, 2)):
        if stage:
            quarters = [cut(cut(x, 1, row, 2**31, 2), 2, column, 2**31, 2) for column in (0, 1) for row in (0, 1)]
            x = net.layer_norm(net.op("Concat", *quarters, axis=-1), 4 * width)
            side, width = side // 2, 2 * width
            x = net.op("MatMul", x, net.weight((2 * width, width)))
        across = side // window
        for block in range(count):
            shift = window // 2 if block % 2 and across > 1 else 0
            y = net.layer_norm(x, width)
            y = roll(y, shift) if shift else y
            y = net.op("Transpose", net.reshape(y, across, window, across, window, width), perm=[0, 2, 1, 3, 4])
            y = net.reshape(y, across**2, window**2, width)
            y = _attention(net, y, across**2, window**2, width, width // each, mask(side, width // each, shift))
            y = net.op("Transpose", net.reshape(y, across, across, window, window, width), perm=[0, 2, 1, 3, 4])
            y = net.reshape(y, 1, side, side, width)
            x = net.op("Add", x, roll(y, side - shift) if shift else y)
            y = net.dense(net.gelu(net.dense(net.layer_norm(x, width), width, 4 * width)), 4 * width, width)
            x = net.op("Add", x, y)
    x = net.op("ReduceMean", net.layer_norm(x, width), axes=[1, 2], keepdims=0)
    return net.model(net.dense(x, width, 1000), (1, 1000))


def whisper_encoder() -> Any:
    """Build the encoder of Whisper's tiny model: 30 s of sound, two convolutions along time, four layers of 384."""
    net = Net("whisper_encoder")
    x, width, length, heads = net.input("mel", (1, 80, 3000)), 384, 1500, 6
    for cin, stride in ((80, 1), (width, 2)):
        kernel = net.weight((width, cin, 3), (2.0 / (3 * cin)) ** 0.5)
        x = net.gelu(net.op("Conv", x, kernel, net.weight((width,), 0.1), pads=[1, 1], strides=[stride]))
    x = net.op("Add", net.op("Transpose", x, perm=[0, 2, 1]), net.weight((length, width), 0.05))
    for _ in range(4):
        x = net.op("Add", x, _attention(net, net.layer_norm(x, width), 1, length, width, heads))
        y = net.dense(net.gelu(net.dense(net.layer_norm(x, width), width, 4 * width)), 4 * width, width)
        x = net.op("Add", x, y)
    return net.model(net.layer_norm(x, width), (1, length, width))


MADE: dict[str, Callable[[], Any]] = {
    maker.__name__: maker
    for maker in (
        mlp,
        lenet,
        resnet18,
        resnext50,
        vgg11,
        efficientnet,
        distilbert,
        albert,
        convnext,
        swin,
        whisper_encoder,
    )
} | LARGE
"""The models by name."""
