"""Models that are built here, of the same families as the exported ones, and two small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from .nets import Net


def mlp() -> Any:
    """Layers of 784, 1024, 512, 256 and 10 on a batch of 1."""
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
    """Bottlenecks whose 3×3 convolutions have 32 groups."""
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
    """BERT's encoder on token ids and a mask; `shared` uses one layer's weights for all."""
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


MADE: dict[str, Callable[[], Any]] = {
    maker.__name__: maker for maker in (mlp, lenet, resnet18, resnext50, vgg11, efficientnet, distilbert, albert)
}
"""The models by name."""
