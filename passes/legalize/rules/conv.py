"""Default rules of convolutions: one reduction block over the window and the channels of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.relax.infer_windows import data_shape, per_dim
from mirlo.dialects.tir.compute import Expr, TensorExpr, all_of, constant, select
from mirlo.passes.legalize.helpers import tensor_type, wide_dtype
from mirlo.passes.legalize.windows import Windows
from mirlo.passes.rules import legalize


@legalize("relax.conv")
def conv(op: Any, b: Any) -> Any:
    output = tensor_type(op.output)

    def body(p: Any, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None) -> TensorExpr:
        kernel = weight.shape[2:] if op.kernel_layout == "OI*" else weight.shape[:-2]
        windows = Windows.of(op, x.shape, kernel, output.static_shape, op.data_layout)
        return convolve(p, x, weight, bias, windows, op.groups, op.kernel_layout, output.dtype)

    return b.call_prim(body, op.x, op.weight, op.bias)


def convolve(
    p: Any,
    x: TensorExpr,
    weight: TensorExpr,
    bias: TensorExpr | None,
    windows: Windows,
    groups: int,
    kernel_layout: str,
    element_type: DType,
) -> TensorExpr:
    """The blocks of a convolution: `conv`, and `bias` where there is one (or the sums are wider than the result)."""
    sum_type = wide_dtype(element_type)
    if kernel_layout == "OI*":
        out_channels, group_in = weight.shape[:2]
    else:
        group_in, out_channels = weight.shape[-2:]
    group_out = out_channels // groups
    depthwise = groups > 1 and group_in == 1
    shape = data_shape(windows.layout, x.shape[0], out_channels, windows.counts)
    extents = windows.kernel if depthwise else (group_in, *windows.kernel)
    outside = (0.0 if x.dtype.is_float else 0) if windows.leaves else None

    def element(*axes: Expr) -> Expr:
        n, oc, at = windows.split(axes[: len(shape)])
        inner = list(axes[len(shape) :])
        ic: Any = 0 if depthwise else inner.pop(0)
        group = oc if group_out == 1 else oc // group_out
        channel = ic if groups == 1 else group if depthwise else group * group_in + ic
        read = x.at(*windows.join(n, channel, windows.source(at, inner)), outside=outside)
        factor = weight.at(*((oc, ic, *inner) if kernel_layout == "OI*" else (*inner, ic, oc)))
        return read.cast(sum_type) * factor.cast(sum_type)

    made = p.reduce("add", shape, extents, element, name="conv")
    if bias is None and element_type is sum_type:
        return made

    def finished(*axes: Expr) -> Expr:
        value = made.at(*axes)
        if bias is not None:
            _, oc, _ = windows.split(axes)
            value = value + bias[oc].cast(sum_type)
        return value.cast(element_type)

    return p.compute(shape, finished, name="bias" if bias is not None else "cast")


@legalize("relax.conv_transpose")
def conv_transpose(op: Any, b: Any) -> Any:
    """A convolution of the operand, spread out by the strides, with the weight flipped and its channels swapped."""
    output = tensor_type(op.output)

    def body(p: Any, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None) -> TensorExpr:
        windows = Windows.of(op, x.shape, weight.shape[2:], output.static_shape, op.data_layout)
        spread = _spread(p, x, windows)
        flipped = _flip(p, weight, op.groups)
        ones = (1,) * len(windows.sizes)
        reaches = [(k - 1) * d for k, d in zip(windows.kernel, windows.dilations, strict=True)]
        extra = per_dim(op.output_padding, len(ones), 0, 0, "output_padding")
        forward = replace(
            windows,
            sizes=tuple((n - 1) * s + 1 for n, s in zip(windows.sizes, windows.strides, strict=True)),
            strides=ones,
            begins=tuple(r - begin for r, begin in zip(reaches, windows.begins, strict=True)),
            ends=tuple(r - end + e for r, end, e in zip(reaches, windows.ends, extra, strict=True)),
        )
        return convolve(p, spread, flipped, bias, forward, op.groups, "OI*", output.dtype)

    return b.call_prim(body, op.x, op.weight, op.bias)


def _spread(p: Any, x: TensorExpr, windows: Windows) -> TensorExpr:
    """x with zeros between its elements, stride - 1 of them."""
    if all(s == 1 for s in windows.strides):
        return x
    sizes = [(n - 1) * s + 1 for n, s in zip(windows.sizes, windows.strides, strict=True)]
    channels = x.shape[1 if windows.layout == "NC*" else -1]

    def element(*axes: Expr) -> Expr:
        n, c, at = windows.split(axes)
        steps = list(zip(at, windows.strides, strict=True))
        hit = all_of([(i % s).equals(0) for i, s in steps if s > 1])
        value = x.at(*windows.join(n, c, [i // s if s > 1 else i for i, s in steps]))
        return select(hit, value, constant(0, x.dtype))

    return p.compute(windows.join(x.shape[0], channels, sizes), element, name="spread")


def _flip(p: Any, weight: TensorExpr, groups: int) -> TensorExpr:
    """From (in, out / groups, *window) to (out, in / groups, *window reversed)."""
    channels, group_out, *kernel = weight.shape
    group_in = channels // groups

    def element(oc: Expr, ic: Expr, *at: Expr) -> Expr:
        reversed_: Sequence[Expr] = [(size - 1) - i if size > 1 else i for i, size in zip(at, kernel, strict=True)]
        if groups == 1:
            return weight.at(ic, oc, *reversed_)
        return weight.at((oc // group_out) * group_in + ic, oc % group_out, *reversed_)

    return p.compute((group_out * groups, group_in, *kernel), element, name="flip")
