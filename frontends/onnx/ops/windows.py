"""Shared attributes of convolutions and pooling: kernel, strides, dilations, padding."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.records import dataclass

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class NodeWindows:
    """Windows over the spatial dims."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]
    """All starts, then all ends."""

    def attributes(self) -> dict[str, tuple[int, ...]]:
        return {"strides": self.strides, "dilations": self.dilations, "padding": self.padding}


def windows(node: Node, spatial: Sequence[Dim], kernel: Sequence[int]) -> NodeWindows:
    """Read strides, dilations, pads and auto_pad."""
    count = len(spatial)
    strides = per_dim(node, "strides", count)
    dilations = per_dim(node, "dilations", count)
    return NodeWindows(strides, dilations, padding(node, spatial, kernel, strides, dilations))


def per_dim(node: Node, name: str, count: int) -> tuple[int, ...]:
    values = node.attr.ints(name, None) or [1] * count
    if len(values) != count:
        raise NodeError(f"attribute '{name}' must have {count} numbers, one per spatial dim, got {values}")
    if any(value < 1 for value in values):
        raise NodeError(f"attribute '{name}' must be at least 1, got {values}")
    return tuple(values)


def kernel_shape(node: Node, expected: Sequence[Dim] | None = None) -> tuple[int, ...]:
    """Return the attribute 'kernel_shape', or the weight's spatial dims if it is absent."""
    kernel = node.attr.ints("kernel_shape", None)
    if kernel is None and expected is not None and all(isinstance(size, int) for size in expected):
        kernel = [size for size in expected if isinstance(size, int)]
    if kernel is None and expected is not None:
        return tuple(expected)  # type: ignore[arg-type]  # dynamic sizes
    if kernel is None:
        raise NodeError("attribute 'kernel_shape' is missing")
    if expected is not None and any(isinstance(b, int) and a != b for a, b in zip(kernel, expected, strict=False)):
        raise NodeError(f"attribute 'kernel_shape' is {kernel}, but the weight's kernel is {list(expected)}")
    return tuple(kernel)


def padding(
    node: Node, spatial: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return static padding: attribute 'pads', or the result of 'auto_pad'."""
    count = len(spatial)
    auto_pad = node.attr.choice("auto_pad", "NOTSET", AUTO_PADS)
    pads = node.attr.ints("pads", None)
    if auto_pad == "NOTSET":
        pads = pads or [0] * (2 * count)
        if len(pads) != 2 * count:
            raise NodeError(f"attribute 'pads' must have {2 * count} numbers, begins then ends, got {pads}")
        return tuple(pads)
    if pads and any(pads):
        raise NodeError(f"attributes 'pads' and 'auto_pad' = '{auto_pad}' exclude each other")
    if auto_pad == "VALID":
        return (0,) * (2 * count)
    upper = auto_pad == "SAME_UPPER"
    padding = [
        same_padding(size, window, stride, dilation, upper)
        for size, window, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    known = [pad for i in range(2) for pad in (each[i] for each in padding) if isinstance(pad, int)]
    if len(known) < 2 * count:
        raise NodeError(
            f"attribute 'auto_pad' = '{auto_pad}' with strides {list(strides)} needs known sizes, but the spatial dims "
            f"are {list(spatial)}; fix the input's shape"
        )
    return tuple(known)


def same_padding(size: Dim, window: Dim, stride: int, dilation: int, upper: bool) -> tuple[Dim, Dim]:
    """Return the padding at both ends with which ceil(size / stride) windows fit, its larger half last if `upper`."""
    extent = (window - 1) * dilation + 1
    total = extent - 1 if stride == 1 else D.maximum((D.ceildiv(size, stride) - 1) * stride + extent - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def pads_at_run_time(node: Node) -> bool:
    """Return whether 'auto_pad' depends on symbolic sizes."""
    auto_pad = node.attr.choice("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return False
    spatial = node.type(0).shape[2:]
    strides = per_dim(node, "strides", len(spatial))
    return any(stride > 1 and not isinstance(size, int) for size, stride in zip(spatial, strides, strict=True))


def padded_for_same(node: Node, x: Tensor, kernel: Sequence[Dim], value: float) -> Tensor:
    """Pad x [N, C, *spatial] so that ceil(size / stride) windows fit without further padding."""
    kind = x.type
    spatial = kind.shape[2:]
    strides, dilations = per_dim(node, "strides", len(spatial)), per_dim(node, "dilations", len(spatial))
    upper = node.attr.str("auto_pad") == "SAME_UPPER"
    pads = [
        same_padding(size, window, stride, dilation, upper)
        for size, window, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    shape = (*kind.shape[:2], *(size + begin + end for size, (begin, end) in zip(spatial, pads, strict=True)))
    return _padded(node, x, [begin for begin, _ in pads], shape, value)


def windows_inside(node: Node) -> dict[str, tuple[int, ...]]:
    """Return the attributes of windows over an operand that is padded already."""
    count = node.type(0).rank - 2
    return {"strides": per_dim(node, "strides", count), "dilations": per_dim(node, "dilations", count)}


def cut_or_grown(node: Node, result: Tensor, wanted: Sequence[Dim], upper: bool) -> Tensor:
    """Cut or extend the result of an unpadded transposed convolution, [N, C, *spatial], to one of these sizes.

    The excess is cut at both ends, with the odd element at the end if `upper`; missing elements are zeros at the
    end.
    """
    kind = result.type
    totals = [D.maximum(size - dim, 0) for size, dim in zip(kind.shape[2:], wanted, strict=True)]
    cut = [total // 2 if upper else total - total // 2 for total in totals]
    return _padded(node, result, [begin * -1 for begin in cut], (*kind.shape[:2], *wanted), 0)


def _padded(node: Node, x: Tensor, begins: Sequence[Dim], shape: Sequence[Dim], value: float) -> Tensor:
    amounts = node.sizes([0, 0, *begins])
    return node.emit("pad_at", x, amounts, node.constant(value, x.type), shape=tuple(shape))
