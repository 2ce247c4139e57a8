"""Default rules of convolutions: one reduction block over the window and the channels of a group."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import data_shape, kernel_axes
from mirlo.dialects.relax.matmul import Matmul
from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import Expr, ExprLike, TensorExpr
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import tensor_type, wide_dtype
from mirlo.passes.legalize.windows import SlidingWindows
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.conv")
def conv(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = tensor_type(op.output)

    def body(p: PrimBuilder, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None) -> TensorExpr:
        kernel = [weight.shape[axis] for axis in kernel_axes(op.kernel_layout, len(weight.shape))[2]]
        windows = SlidingWindows.of(op, x.shape, kernel, output.shape, op.data_layout)
        return convolve(p, x, weight, bias, windows, op.groups, op.kernel_layout, output.dtype)

    return b.call_prim(body, op.x, op.weight, op.bias)


def convolve(
    p: PrimBuilder,
    x: TensorExpr,
    weight: TensorExpr,
    bias: TensorExpr | None,
    windows: SlidingWindows,
    groups: int,
    kernel_layout: str,
    result: DType,
) -> TensorExpr:
    """Emit the blocks of a convolution: `conv`, and `bias` if there is one (or wide accumulators)."""
    total = contract(p, x, weight, windows, groups, kernel_layout, wide_dtype(result))
    if bias is None and result is total.dtype:
        return total

    def finished(*axes: Expr) -> Expr:
        value = total.at(*axes)
        if bias is not None:
            _, oc, _ = windows.split(axes)
            value = value + bias[oc].cast(total.dtype)
        return value.cast(result)

    return p.compute(total.shape, finished, name="bias" if bias is not None else "cast")


def contract(
    p: PrimBuilder,
    x: TensorExpr,
    weight: TensorExpr,
    windows: SlidingWindows,
    groups: int,
    kernel_layout: str,
    sum_type: DType,
) -> TensorExpr:
    """Emit the reduction block of a convolution with accumulators of type `sum_type`."""
    rank = len(weight.shape)
    out_axis, in_axis, window = kernel_axes(kernel_layout, rank)
    out_channels, group_in = weight.shape[out_axis], weight.shape[in_axis]
    group_out = out_channels // groups
    depthwise = groups > 1 and group_in == 1
    shape = data_shape(windows.layout, x.shape[0], out_channels, windows.counts)
    extents = windows.kernel if depthwise else (group_in, *windows.kernel)
    outside = (0.0 if x.dtype.is_float else 0) if windows.leaves else None

    def element(*axes: Expr) -> Expr:
        n, oc, at = windows.split(axes[: len(shape)])
        inner = list(axes[len(shape) :])
        ic: ExprLike = 0 if depthwise else inner.pop(0)
        group = oc if group_out == 1 else oc // group_out
        channel = ic if groups == 1 else group if depthwise else group * group_in + ic
        read = x.at(*windows.join(n, channel, windows.source(at, inner)), outside=outside)
        position = {out_axis: oc, in_axis: ic, **dict(zip(window, inner, strict=True))}
        factor = weight.at(*(position[axis] for axis in range(rank)))
        return read.cast(sum_type) * factor.cast(sum_type)

    return p.reduce("add", shape, extents, element, name="conv")


@legalize("relax.conv", priority=-10, name="im2col")
def im2col(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Multiply a matrix of all windows by the weight."""
    x, output = tensor_type(op.x), tensor_type(op.output)
    weight = tensor_type(op.weight)
    if op.groups != 1:
        return decline("a product of matrices is for convolutions without groups", groups=op.groups)
    if output.dtype is not x.dtype:
        return decline("the accumulator type differs from the operand type", x=x.dtype, output=output.dtype)
    outer_first = op.kernel_layout != "*IO"
    channels_first = op.kernel_layout == "OI*"
    shape = weight.shape
    out_axis, _, taps = kernel_axes(op.kernel_layout, len(shape))
    channels, kernel = shape[out_axis], [shape[axis] for axis in taps]
    windows = SlidingWindows.of(op, x.shape, kernel, output.shape, op.data_layout)
    depth, pixels = math.prod(shape) // channels, math.prod(windows.counts)
    channels_last = op.data_layout == "N*C"

    columns = b.call_prim(lambda p, x: columns_of(p, x, windows, channels_first, channels_last), op.x, name="im2col")
    matrix = (pixels, depth) if channels_last else (depth, pixels)
    columns = b.emit(Reshape, columns, shape=(x.shape[0], *matrix))
    flat = b.emit(Reshape, op.weight, shape=(channels, depth) if outer_first else (depth, channels))
    if channels_last:
        result = b.emit(Matmul, columns, flat, transpose_rhs=outer_first)
    else:
        result = b.emit(Matmul, flat, columns, transpose_lhs=not outer_first)
    if op.bias is not None:
        bias = op.bias if channels_last else b.emit(Reshape, op.bias, shape=(channels, 1))
        result = b.emit(OPS["add"], result, bias)
    return b.emit(Reshape, result, shape=output.shape)


def columns_of(
    p: PrimBuilder, x: TensorExpr, windows: SlidingWindows, channels_first: bool, channels_last: bool
) -> TensorExpr:
    """Return [batch, *element of the window, *position of the window]; positions come first if channels are last."""
    channel_axis = -1 if channels_last else 1
    channels = x.shape[channel_axis]
    inner = (channels, *windows.kernel) if channels_first else (*windows.kernel, channels)
    rank = len(windows.kernel)
    outside = (0.0 if x.dtype.is_float else 0) if windows.leaves else None

    def element(n: Expr, *axes: Expr) -> Expr:
        at, within = (axes[:rank], axes[rank:]) if channels_last else (axes[-rank:], axes[:-rank])
        channel, taps = (within[0], within[1:]) if channels_first else (within[-1], within[:-1])
        return x.at(*windows.join(n, channel, windows.source(at, taps)), outside=outside)

    shape = (*windows.counts, *inner) if channels_last else (*inner, *windows.counts)
    return p.compute((x.shape[0], *shape), element, name="im2col")
