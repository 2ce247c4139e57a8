"""Default rule of transposed convolution: a convolution with a rearranged weight.

With stride s, every s-th element of the result is made by the same taps of the window, those s apart. So one
convolution with s times the channels (per spatial dim) makes all s phases, and they are interleaved. Where strides and
dilations mix, the operand is spread out with zeros instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mirlo.dialects.relax.infer_windows import data_shape, per_dim
from mirlo.dialects.tir.compute import Expr, TensorExpr, all_of, constant, select
from mirlo.passes.legalize.helpers import tensor_type, wide_dtype
from mirlo.passes.legalize.rules.conv import contract, convolve
from mirlo.passes.legalize.windows import Windows
from mirlo.passes.rules import legalize


@legalize("relax.conv_transpose")
def conv_transpose(op: Any, b: Any) -> Any:
    output = tensor_type(op.output)

    def body(p: Any, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None) -> TensorExpr:
        windows = Windows.of(op, x.shape, weight.shape[2:], output.static_shape, op.data_layout)
        strided, dilated = max(windows.strides) > 1, max(windows.dilations) > 1
        if not strided or dilated:
            return _spread_out(p, op, x, weight, bias, windows)
        return _in_phases(p, op, x, weight, bias, windows)

    return b.call_prim(body, op.x, op.weight, op.bias)


def _in_phases(
    p: Any, op: Any, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None, windows: Windows
) -> TensorExpr:
    strides, begins = windows.strides, windows.begins
    phases = math.prod(strides)
    taps = tuple(-(-k // s) for k, s in zip(windows.kernel, strides, strict=True))
    first = [begin // s for begin, s in zip(begins, strides, strict=True)]
    counts = tuple(
        (count + begin - 1) // s + 1 - low
        for count, begin, s, low in zip(windows.counts, begins, strides, first, strict=True)
    )
    ones = (1,) * len(strides)
    forward = replace(
        windows,
        counts=counts,
        kernel=taps,
        strides=ones,
        dilations=ones,
        begins=tuple(t - 1 - low for t, low in zip(taps, first, strict=True)),
    )
    rearranged = _weight_of_phases(p, weight, op.groups, strides, taps)
    made = contract(p, x, rearranged, forward, op.groups, "OI*", wide_dtype(x.dtype))
    channels = rearranged.shape[0] // phases

    def interleaved(*axes: Expr) -> Expr:
        n, oc, at = windows.split(axes)
        places = [i + begin for i, begin in zip(at, begins, strict=True)]
        phase: Any = oc
        for place, s in zip(places, strides, strict=True):
            phase = phase * s + place % s
        where = [place // s - low for place, s, low in zip(places, strides, first, strict=True)]
        value = made.at(*windows.join(n, phase, where))
        if bias is not None:
            value = value + bias[oc].cast(made.dtype)
        return value.cast(x.dtype)

    shape = data_shape(windows.layout, x.shape[0], channels, windows.counts)
    return p.compute(shape, interleaved, name="interleave")


def _weight_of_phases(
    p: Any, weight: TensorExpr, groups: int, strides: Sequence[int], taps: Sequence[int]
) -> TensorExpr:
    """From (in, out / groups, *window) to (out * phases, in / groups, *taps reversed); zero beyond the window."""
    group_in = weight.shape[0] // groups
    phases = math.prod(strides)

    def element(made: Expr, ic: Expr, *at: Expr) -> Expr:
        rest = made
        inner: list[Expr] = []
        for i in reversed(range(len(strides))):
            inner.insert(0, rest % strides[i] + ((taps[i] - 1) - at[i]) * strides[i])
            rest = rest // strides[i]
        beyond = any(t * s > k for t, s, k in zip(taps, strides, weight.shape[2:], strict=True))
        return weight.at(*_channels(weight, groups, rest, ic), *inner, outside=0.0 if beyond else None)

    return p.compute((weight.shape[1] * groups * phases, group_in, *taps), element, name="phases")


def _channels(weight: TensorExpr, groups: int, oc: Expr, ic: Expr) -> list[Expr]:
    """Where (in, out / groups) holds the pair of an out channel and an in channel of its group."""
    if groups == 1:
        return [ic, oc]
    group_in, group_out = weight.shape[0] // groups, weight.shape[1]
    return [(oc // group_out) * group_in + ic, oc % group_out]


def _spread_out(
    p: Any, op: Any, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None, windows: Windows
) -> TensorExpr:
    spread = _spread(p, x, windows)
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
    return convolve(p, spread, _flip(p, weight, op.groups), bias, forward, op.groups, "OI*", x.dtype)


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

    def element(oc: Expr, ic: Expr, *at: Expr) -> Expr:
        turned = [(size - 1) - i if size > 1 else i for i, size in zip(at, kernel, strict=True)]
        return weight.at(*_channels(weight, groups, oc, ic), *turned)

    return p.compute((group_out * groups, channels // groups, *kernel), element, name="flip")
