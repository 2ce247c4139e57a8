"""Windows whose padding depends on dynamic sizes: the operand is padded first, or the result cut.

Otherwise padding is a list of integers, and kernels read past the edges.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.windows import per_dim, same_padding
from mirlo.frontends.tensor import Tensor


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
