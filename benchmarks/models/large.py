"""Models of many different kernels, as exporters and quantizers write them: what takes long to compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from .nets import Net


class _QuantizedNet(Net):
    """A net whose convolutions and products are between QuantizeLinear and DequantizeLinear."""

    def quantized(self, x: str) -> str:
        scale, zero = self.constant(np.float32(0.05)), self.constant(np.uint8(128))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, scale, zero), scale, zero)

    def codes(self, shape: tuple[int, ...], axis: int) -> str:
        """Add weights of int8 with a scale for each channel."""
        seed = len(self.weights)
        values = np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)
        deviation = 0.02 / np.sqrt(np.prod(shape) / shape[axis])
        scales = np.random.default_rng(seed).uniform(deviation / 2, deviation, shape[axis]).astype(np.float32)
        zeros = self.constant(np.zeros(shape[axis], np.int8))
        return self.op("DequantizeLinear", self.constant(values), self.constant(scales), zeros, axis=axis)

    def conv(self, x: str, cin: int, cout: int, size: int, stride: int = 1, groups: int = 1, norm: bool = True) -> str:
        weight = self.codes((cout, cin // groups, size, size), 0)
        settings = {"kernel_shape": [size, size], "strides": [stride] * 2, "pads": [size // 2] * 4, "group": groups}
        return self.quantized(self.op("Conv", self.quantized(x), weight, self.weight((cout,), 0.1), **settings))

    def dense(self, x: str, n_in: int, n_out: int) -> str:
        product = self.op("MatMul", self.quantized(x), self.codes((n_in, n_out), 1))
        return self.quantized(self.op("Add", product, self.weight((n_out,), 0.02)))


def _silu(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Sigmoid", x))


def diffusion_unet() -> Any:
    """Build a UNet of residual blocks and of transformers that read a text, at three sizes."""
    net, heads, context = Net("diffusion-unet"), 8, (77, 512)
    latent = net.input("latent", (1, 4, 64, 64))
    text = net.input("text", (1, *context))
    step = net.input("step", (1, 128))
    time = net.dense(_silu(net, net.dense(step, 128, 512)), 512, 512)

    def group_norm(x: str, channels: int, side: int) -> str:
        grouped = net.reshape(x, 1, 32, -1)
        one, none = net.constant(np.ones(32, np.float32)), net.constant(np.zeros(32, np.float32))
        whole = net.reshape(net.op("InstanceNormalization", grouped, one, none, epsilon=1e-5), 1, channels, side, side)
        return net.op(
            "Add", net.op("Mul", whole, net.weight((channels, 1, 1), 0.1, 1.0)), net.weight((channels, 1, 1), 0.1)
        )

    def conv(x: str, cin: int, cout: int, size: int, stride: int = 1) -> str:
        settings = {"kernel_shape": [size, size], "strides": [stride] * 2, "pads": [size // 2] * 4}
        return net.op("Conv", x, net.weight((cout, cin, size, size)), net.weight((cout,), 0.1), **settings)

    def residual(x: str, cin: int, cout: int, side: int) -> str:
        y = conv(_silu(net, group_norm(x, cin, side)), cin, cout, 3)
        added = net.reshape(net.dense(_silu(net, time), 512, cout), 1, cout, 1, 1)
        y = conv(_silu(net, group_norm(net.op("Add", y, added), cout, side)), cout, cout, 3)
        return net.op("Add", y, x if cin == cout else conv(x, cin, cout, 1))

    def attention(x: str, source: str, width: int, n_in: int) -> str:
        each = width // heads
        q, k, v = (
            net.op("MatMul", of, net.weight((n, width))) for of, n in ((x, width), (source, n_in), (source, n_in))
        )
        q, k, v = (net.op("Transpose", net.reshape(y, 1, -1, heads, each), perm=[0, 2, 1, 3]) for y in (q, k, v))
        scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
        shares = net.op("Softmax", net.op("Mul", scores, net.constant(np.float32(each**-0.5))), axis=-1)
        y = net.reshape(net.op("Transpose", net.op("MatMul", shares, v), perm=[0, 2, 1, 3]), 1, -1, width)
        return net.dense(y, width, width)

    def transformer(x: str, width: int, side: int) -> str:
        y = conv(group_norm(x, width, side), width, width, 1)
        y = net.reshape(net.op("Transpose", y, perm=[0, 2, 3, 1]), 1, side * side, width)
        own = net.layer_norm(y, width)
        y = net.op("Add", y, attention(own, own, width, width))
        y = net.op("Add", y, attention(net.layer_norm(y, width), text, width, context[1]))
        wide = net.dense(net.layer_norm(y, width), width, 8 * width)
        sizes = net.constant(np.array([4 * width] * 2, np.int64))
        net.nodes.append(_split(wide, sizes, f"{wide}_a", f"{wide}_b"))
        gated = net.op("Mul", f"{wide}_a", net.gelu(f"{wide}_b"))
        y = net.op("Add", y, net.dense(gated, 4 * width, width))
        y = net.op("Transpose", net.reshape(y, 1, side, side, width), perm=[0, 3, 1, 2])
        return net.op("Add", x, conv(y, width, width, 1))

    widths = (128, 256, 512)
    x, side, cin = conv(latent, 4, 128, 3), 64, 128
    skips = [(x, cin)]
    for level, width in enumerate(widths):
        for _ in range(2):
            x, cin = transformer(residual(x, cin, width, side), width, side), width
            skips.append((x, cin))
        if level < 2:
            x, side = conv(x, cin, cin, 3, 2), side // 2
            skips.append((x, cin))
    x = residual(transformer(residual(x, cin, cin, side), cin, side), cin, cin, side)
    for level, width in reversed(list(enumerate(widths))):
        for _ in range(3):
            skip, more = skips.pop()
            joined = net.op("Concat", x, skip, axis=1)
            x, cin = transformer(residual(joined, cin + more, width, side), width, side), width
        if level:
            side *= 2
            scales = net.constant(np.array([1, 1, 2, 2], np.float32))
            x = conv(net.op("Resize", x, "", scales, mode="nearest"), cin, cin, 3)
    return net.model(conv(_silu(net, group_norm(x, cin, side)), cin, 4, 3), (1, 4, 64, 64))


def _split(x: str, sizes: str, *outputs: str) -> Any:
    from onnx import helper

    return helper.make_node("Split", [x, sizes], list(outputs), name=f"node_split_{x}", axis=-1)


class _DynamicNet(Net):
    """A net whose convolutions are ConvInteger, as ONNX Runtime's dynamic quantization makes them."""

    def integer_conv(self, x: str, cin: int, cout: int, dilation: int = 1, stride: int = 1, relu: bool = True) -> str:
        quantized = self.op("DynamicQuantizeLinear", x)
        scale, zero = f"{quantized}_scale", f"{quantized}_zero"
        self.nodes[-1].output.extend([scale, zero])
        codes = np.random.default_rng(len(self.weights)).integers(0, 256, (cout, cin, 3, 3)).astype(np.uint8)
        settings = {
            "kernel_shape": [3, 3],
            "strides": [stride] * 2,
            "pads": [dilation] * 4,
            "dilations": [dilation] * 2,
        }
        total = self.op("ConvInteger", quantized, self.constant(codes), zero, self.constant(np.uint8(128)), **settings)
        scales = self.op("Mul", scale, self.constant(np.float32(0.02 / cin)))
        y = self.op("Mul", self.op("Cast", total, to=TensorProto.FLOAT), scales)
        y = self.op("Add", y, self.weight((1, cout, 1, 1), 0.1))
        return self.op("Relu", y) if relu else y

    def pooled(self, x: str) -> str:
        return self.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)

    def resized(self, x: str, channels: int, side: int) -> str:
        sizes = self.constant(np.array([1, channels, side, side], np.int64))
        return self.op("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")

    def nested(self, x: str, depth: int, cin: int, middle: int, cout: int, side: int) -> str:
        """Add a U-structure of this depth, or of dilated convolutions where it is 0."""
        first = self.integer_conv(x, cin, cout)
        if not depth:
            return self.op("Add", self._dilated(first, middle, cout), first)
        y, levels, sides = self.integer_conv(first, cout, middle), [], [side]
        for _ in range(depth - 2):
            levels.append(y)
            sides.append(-(-sides[-1] // 2))
            y = self.integer_conv(self.pooled(y), middle, middle)
        levels.append(y)
        y = self.integer_conv(y, middle, middle, 2)
        for position in range(depth - 2, -1, -1):
            joined = self.op("Concat", y, levels[position], axis=1)
            y = self.integer_conv(joined, 2 * middle, middle if position else cout)
            if position:
                y = self.resized(y, middle, sides[position - 1])
        return self.op("Add", y, first)

    def _dilated(self, x: str, middle: int, cout: int) -> str:
        levels = [self.integer_conv(x, cout, middle)]
        for dilation in (2, 4):
            levels.append(self.integer_conv(levels[-1], middle, middle, dilation))
        y = self.integer_conv(levels[-1], middle, middle, 8)
        for level, (dilation, width) in zip(reversed(levels), ((4, middle), (2, middle), (1, cout)), strict=True):
            y = self.integer_conv(self.op("Concat", y, level, axis=1), 2 * middle, width, dilation)
        return y


def isnet() -> Any:
    """Build IS-Net: nested U-structures."""
    net = _DynamicNet("isnet")
    x = net.integer_conv(net.input("x", (1, 3, 1024, 1024)), 3, 64, stride=2, relu=False)
    side, cin, saved = 512, 64, []
    for depth, middle, cout in ((7, 32, 64), (6, 32, 128), (5, 64, 256), (4, 128, 512), (0, 256, 512)):
        x = net.nested(x, depth, cin, middle, cout, side)
        saved.append((x, cout, side))
        x, cin, side = net.pooled(x), cout, side // 2
    x = net.nested(x, 0, 512, 256, 512, side)
    outputs = [(x, 512)]
    decoder = ((0, 256, 512), (4, 128, 256), (5, 64, 128), (6, 32, 64), (7, 16, 64))
    for (skip, width, side), (depth, middle, cout) in zip(reversed(saved), decoder, strict=True):
        joined = net.op("Concat", net.resized(x, outputs[-1][1], side), skip, axis=1)
        x = net.nested(joined, depth, outputs[-1][1] + width, middle, cout, side)
        outputs.append((x, cout))
    maps = [net.op("Sigmoid", net.resized(net.integer_conv(y, n, 1, relu=False), 1, 1024)) for y, n in outputs]
    return net.model(net.op("Concat", *maps, axis=1), (1, len(maps), 1024, 1024))


def convnext_qdq() -> Any:
    """ConvNeXt-Tiny with int8 convolutions and products."""
    net = _QuantizedNet("convnext-qdq")
    x, cin = net.conv(net.input("x", (1, 3, 224, 224)), 3, 96, 4, 4), 96
    side = 57  # the quantized convolution pads by half of its size
    for count, width in ((3, 96), (3, 192), (9, 384), (3, 768)):
        if width != cin:
            x = net.op("Transpose", net.layer_norm(net.op("Transpose", x, perm=[0, 2, 3, 1]), cin), perm=[0, 3, 1, 2])
            x, side, cin = net.conv(x, cin, width, 3, 2), (side + 1) // 2, width
        for _ in range(count):
            y = net.op("Transpose", net.conv(x, width, width, 7, groups=width), perm=[0, 2, 3, 1])
            y = net.dense(net.layer_norm(y, width), width, 4 * width)
            y = net.dense(net.gelu(y), 4 * width, width)
            y = net.op("Mul", y, net.weight((width,), 0.1))
            x = net.op("Add", x, net.op("Transpose", y, perm=[0, 3, 1, 2]))
    x = net.reshape(net.op("GlobalAveragePool", x), 1, 768)
    return net.model(net.dense(net.layer_norm(x, 768), 768, 1000), (1, 1000))


def efficientnet_qdq() -> Any:
    """EfficientNet-B3's blocks with int8 convolutions."""
    net = _QuantizedNet("efficientnet-qdq")
    x, cin = _silu(net, net.conv(net.input("x", (1, 3, 300, 300)), 3, 40, 3, 2)), 40
    stages = ((1, 24, 2, 3, 1), (6, 32, 3, 3, 2), (6, 48, 3, 5, 2), (6, 96, 5, 3, 2), (6, 136, 5, 5, 1),
              (6, 232, 6, 5, 2), (6, 384, 2, 3, 1))  # fmt: skip
    for widen, cout, count, size, first in stages:
        for position in range(count):
            stride, wide = first if position == 0 else 1, cin * widen
            y = _silu(net, net.conv(x, cin, wide, 1)) if widen > 1 else x
            y = net.quantized(_silu(net, net.conv(y, wide, wide, size, stride, groups=wide)))
            squeezed = _silu(net, net.conv(net.op("GlobalAveragePool", y), wide, max(1, cin // 4), 1))
            gate = net.quantized(net.op("Sigmoid", net.conv(squeezed, max(1, cin // 4), wide, 1)))
            y = net.conv(net.op("Mul", y, gate), wide, cout, 1)
            x = net.op("Add", x, y) if stride == 1 and cin == cout else y
            cin = cout
    x = net.reshape(net.op("GlobalAveragePool", _silu(net, net.conv(x, cin, 1536, 1))), 1, 1536)
    return net.model(net.dense(x, 1536, 1000), (1, 1000))


LARGE: dict[str, Callable[[], Any]] = {
    "diffusion-unet": diffusion_unet,
    "isnet": isnet,
    "convnext-qdq": convnext_qdq,
    "efficientnet-qdq": efficientnet_qdq,
}
