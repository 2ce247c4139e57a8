"""Eight models of the sizes that microcontrollers and small accelerators run, with weights from a seed.

`model(name)` is the f32 model, `samples(name)` are inputs that calibrate it, `quantized(name)` is its int8 model. The
architectures are those of the MLPerf Tiny benchmark (MobileNetV1 0.25, DS-CNN, ResNet-8, the autoencoder), of the
examples of TensorFlow Lite Micro (person detector, wake word), MobileNetV2, and a transformer of two layers.

`python -m benchmarks.models.tiny FOLDER [NAME...]` writes them as `NAME.onnx` and `NAME.int8.onnx`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .nets import Net

SAMPLES = 16
"""Samples that calibrate: weights and data are random, more do not change the ranges."""


def _average(net: Net, x: str, channels: int) -> str:
    return net.reshape(net.op("GlobalAveragePool", x), 1, channels)


def _separable(net: Net, x: str, cin: int, cout: int, stride: int = 1) -> str:
    x = net.op("Relu", net.conv(x, cin, cin, 3, stride, groups=cin))
    return net.op("Relu", net.conv(x, cin, cout, 1))


def _mobilenet_v1(name: str, size: int, colors: int, classes: int) -> Any:
    net, width = Net(name), 8
    x = net.op("Relu", net.conv(net.input("x", (1, colors, size, size)), colors, width, 3, 2))
    steps = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *(((128, 1),) * 5), (256, 2), (256, 1))
    for channels, stride in steps:
        x = _separable(net, x, width, channels, stride)
        width = channels
    return net.model(net.dense(_average(net, x, width), width, classes), (1, classes))


def mobilenet_v1() -> Any:
    """Return MobileNetV1 of a quarter of the channels, with 96 x 96 pixels and 1000 classes."""
    return _mobilenet_v1("mobilenet_v1", 96, 3, 1000)


def person_detector() -> Any:
    """Return MobileNetV1 of a quarter of the channels, with 96 x 96 gray pixels and two classes."""
    return _mobilenet_v1("person_detector", 96, 1, 2)


def mobilenet_v2() -> Any:
    """Return MobileNetV2 of all channels, with 96 x 96 pixels and 1000 classes."""
    net, width = Net("mobilenet_v2"), 32

    def clipped(value: str) -> str:
        return net.op("Clip", value, net.constant(np.float32(0)), net.constant(np.float32(6)))

    x = clipped(net.conv(net.input("x", (1, 3, 96, 96)), 3, width, 3, 2))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, channels, count, first in stages:
        for stride in (first, *(1,) * (count - 1)):
            h, wide = x, width * factor
            if factor > 1:
                h = clipped(net.conv(h, width, wide, 1))
            h = clipped(net.conv(h, wide, wide, 3, stride, groups=wide))
            h = net.conv(h, wide, channels, 1)
            x = net.op("Add", x, h) if stride == 1 and width == channels else h
            width = channels
    x = clipped(net.conv(x, width, 1280, 1))
    return net.model(net.dense(_average(net, x, 1280), 1280, 1000), (1, 1000))


def ds_cnn() -> Any:
    """Return a separable CNN for keywords: 49 frames of 10 coefficients, 12 classes."""
    net = Net("ds_cnn")
    x = net.input("x", (1, 1, 49, 10))
    x = net.op("Conv", x, net.weight((64, 1, 10, 4)), net.weight((64,), 0.1), strides=[2, 2], pads=[4, 1, 5, 1])
    x = net.op("Relu", x)
    for _ in range(4):
        x = _separable(net, x, 64, 64)
    return net.model(net.dense(_average(net, x, 64), 64, 12), (1, 12))


def resnet_8() -> Any:
    """Return a residual network of three stages: 32 x 32 pixels, 10 classes."""
    net, width = Net("resnet_8"), 16
    x = net.op("Relu", net.conv(net.input("x", (1, 3, 32, 32)), 3, width, 3))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        h = net.op("Relu", net.conv(x, width, channels, 3, stride))
        h = net.conv(h, channels, channels, 3)
        if stride != 1:
            x = net.op("Conv", x, net.weight((channels, width, 1, 1)), net.weight((channels,), 0.1), strides=[2, 2])
        x = net.op("Relu", net.op("Add", x, h))
        width = channels
    return net.model(net.dense(_average(net, x, width), width, 10), (1, 10))


def autoencoder() -> Any:
    """Return a deep autoencoder of dense layers for sounds of machines: 640 values."""
    net = Net("autoencoder")
    x, widths = net.input("x", (1, 640)), (640, *(128,) * 4, 8, *(128,) * 4, 640)
    for i, (before, after) in enumerate(zip(widths, widths[1:], strict=False)):
        x = net.dense(x, before, after)
        if i < len(widths) - 2:
            x = net.op("Relu", x)
    return net.model(x, (1, 640))


def wake_word() -> Any:
    """Return one convolution and one dense layer for a wake word: 49 frames of 40 coefficients, 4 classes."""
    net = Net("wake_word")
    x = net.input("x", (1, 1, 49, 40))
    x = net.op("Conv", x, net.weight((8, 1, 10, 8)), net.weight((8,), 0.1), strides=[2, 2], pads=[4, 3, 5, 3])
    x = net.reshape(net.op("Relu", x), 1, 25 * 20 * 8)
    return net.model(net.dense(x, 25 * 20 * 8, 4), (1, 4))


def transformer() -> Any:
    """Return a transformer of two layers with two heads: 32 positions of 16 values, 8 classes."""
    net, length, width, heads = Net("transformer"), 32, 32, 2
    x = net.dense(net.input("x", (1, length, 16)), 16, width)
    x = net.op("Add", x, net.weight((1, length, width), 0.1))

    def split(value: str, *order: int) -> str:
        return net.op("Transpose", net.reshape(value, 1, length, heads, width // heads), perm=list(order))

    for _ in range(2):
        h = net.layer_norm(x, width)
        q, k, v = (net.dense(h, width, width) for _ in range(3))
        scores = net.op("MatMul", split(q, 0, 2, 1, 3), split(k, 0, 2, 3, 1))
        scores = net.op("Mul", scores, net.constant(np.float32((width // heads) ** -0.5)))
        h = net.op("MatMul", net.op("Softmax", scores, axis=-1), split(v, 0, 2, 1, 3))
        h = net.reshape(net.op("Transpose", h, perm=[0, 2, 1, 3]), 1, length, width)
        x = net.op("Add", x, net.dense(h, width, width))
        h = net.op("Relu", net.dense(net.layer_norm(x, width), width, 2 * width))
        x = net.op("Add", x, net.dense(h, 2 * width, width))
    x = net.op("ReduceMean", x, axes=[1], keepdims=0)
    return net.model(net.dense(x, width, 8), (1, 8))


TINY: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        mobilenet_v1, mobilenet_v2, ds_cnn, resnet_8, autoencoder, person_detector, wake_word, transformer,
    )
}  # fmt: skip
"""What builds each model, by its name."""


def model(name: str) -> Any:
    """Return the f32 model as an ONNX message. Its input is named `x`, its output `out`."""
    return TINY[name]()


def samples(name: str, count: int = SAMPLES, seed: int = 0) -> np.ndarray:
    """Return typical inputs of a model, one after the other along the first axis."""
    (spec,) = model(name).graph.input
    shape = [dim.dim_value for dim in spec.type.tensor_type.shape.dim]
    drawn = hashlib.sha256(f"{name} {seed}".encode()).digest()[:8]
    rng = np.random.default_rng(int.from_bytes(drawn, "little"))
    return rng.standard_normal((count, *shape[1:]), dtype=np.float32)


def quantized(name: str, **options: Any) -> Any:
    """Return the int8 model as an ONNX message; options are those of `mirlo.quantize`, whole by default."""
    import mirlo

    return mirlo.quantize(model(name), samples(name), **{"whole": True, **options}).model


class QuantizedFiles:
    """The int8 models as files of a folder, each written when its path is first asked for: `files / "NAME.onnx"`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, file: str) -> Path:
        path = self.folder / file
        if not path.exists():
            path.write_bytes(quantized(path.stem).SerializeToString())
        return path


def main() -> None:
    """Write the models to a folder."""
    folder, *names = sys.argv[1:]
    for name in names or TINY:
        Path(folder, f"{name}.onnx").write_bytes(model(name).SerializeToString())
        Path(folder, f"{name}.int8.onnx").write_bytes(quantized(name).SerializeToString())


if __name__ == "__main__":
    main()
