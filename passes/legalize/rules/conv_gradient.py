"""Rules of the gradient of a convolution with respect to its weight."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import CHANNELS_LAST, kernel_axes
from mirlo.dialects.relax.matmul import Matmul
from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import Expr, ExprLike, TensorExpr
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import tensor_type, wide_dtype
from mirlo.passes.legalize.rules.conv import columns_of
from mirlo.passes.legalize.windows import SlidingWindows
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


MIN_SPLIT = 4096
"""Pixels of all images from which on their sum is divided."""
MIN_ROWS = 256
"""Pixels of each part, at least."""


@legalize("relax.conv_weight_gradient", priority=10, name="im2col")
def as_product(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Multiply a matrix of all windows, transposed, by the gradient of the result, whose channels are last."""
    gradient, output = tensor_type(op.gradient), tensor_type(op.output)
    if op.groups != 1 or op.data_layout != CHANNELS_LAST or op.kernel_layout != "*IO":
        return decline("a product of matrices is for channels last, without groups", groups=op.groups)
    windows = _windows(op)
    images, pixels = gradient.shape[0], math.prod(windows.counts)
    depth, channels = math.prod(output.shape[:-1]), output.shape[-1]
    parts = _parts(images, pixels, channels)
    rows = images * pixels // parts
    columns = op.x
    if windows.leaves or windows.counts != windows.sizes:
        columns = b.call_prim(lambda p, x: columns_of(p, x, windows, False, True), op.x, name="im2col")
    elif math.prod(windows.kernel) != 1:
        return decline("windows of no elements")
    columns = b.emit(Reshape, columns, shape=(parts, rows, depth))
    flat = b.emit(Reshape, op.gradient, shape=(parts, rows, channels))
    product = b.emit(Matmul, columns, flat, transpose_lhs=True)
    if parts > 1:
        product = b.emit(OPS["reduce_sum"], product, axes=(0,), keepdims=False)
    return b.emit(Reshape, product, shape=output.shape)


def _parts(images: Dim, pixels: Dim, channels: Dim) -> int:
    """Return how many products of matrices are added: each of the fewest images that have `MIN_ROWS` pixels.

    Operands of a product then stay in the cache, and the sums are fewer than the elements of the operands.
    """
    sizes = [size for size in (images, pixels, channels) if isinstance(size, int)]
    if len(sizes) < 3 or sizes[0] * sizes[1] < MIN_SPLIT:
        return 1
    count, each, rows = sizes[0], sizes[1], max(MIN_ROWS, 2 * sizes[2])
    divisors = (parts for parts in range(1, count + 1) if count % parts == 0)
    return max((parts for parts in divisors if count // parts * each >= rows), default=1)


@legalize("relax.conv_weight_gradient")
def conv_weight_gradient(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Sum the products of the elements of all windows with the gradients of their results."""
    windows, output = _windows(op), tensor_type(op.output)
    out_axis, in_axis, window_axes = kernel_axes(op.kernel_layout, len(output.shape))
    group_in = output.shape[in_axis]
    group_out = output.shape[out_axis] // op.groups
    total_type = wide_dtype(output.dtype)

    def body(p: PrimBuilder, x: TensorExpr, gradient: TensorExpr) -> TensorExpr:
        outside = 0.0 if windows.leaves else None

        def element(*axes: Expr) -> Expr:
            place, (n, *at) = axes[: len(output.shape)], axes[len(output.shape) :]
            oc, ic = place[out_axis], place[in_axis]
            channel: ExprLike = ic
            if op.groups > 1:
                group = oc if group_out == 1 else oc // group_out
                channel = group if group_in == 1 else group * group_in + ic
            read = x.at(*windows.join(n, channel, windows.source(at, [place[a] for a in window_axes])), outside=outside)
            return read.cast(total_type) * gradient.at(*windows.join(n, oc, at)).cast(total_type)

        extents = (gradient.shape[0], *windows.counts)
        total = p.reduce("add", output.shape, extents, element, name="conv_weight_gradient")
        if total.dtype is output.dtype:
            return total
        return p.compute(total.shape, lambda *at: total.at(*at).cast(output.dtype), name="cast")

    return b.call_prim(body, op.x, op.gradient)


def _windows(op: ir.OpView) -> SlidingWindows:
    x, gradient, output = tensor_type(op.x), tensor_type(op.gradient), tensor_type(op.output)
    _, _, axes = kernel_axes(op.kernel_layout, len(output.shape))
    return SlidingWindows.of(op, x.shape, [output.shape[a] for a in axes], gradient.shape, op.data_layout)
