"""Default rule of transposed convolution: a convolution with a rearranged weight.

With stride s, every s-th element of the result uses the same taps of the window, those s apart. So one convolution
with s times the channels (per spatial dim) computes all s phases, and they are interleaved. If both strides and
dilations are used, zeros are inserted between the elements of the operand instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.conv import Conv
from mirlo.dialects.relax.infer import per_dim, window_phases
from mirlo.dialects.tir.compute import Expr, TensorExpr, all_of, constant, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, tensor_type
from mirlo.passes.legalize.rules.conv import convolve
from mirlo.passes.legalize.windows import SlidingWindows
from mirlo.passes.rules import legalize
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.conv_transpose")
def conv_transpose(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape, output = shape_of(op.x), shape_of(op.output)
    windows = SlidingWindows.of(op, shape, shape_of(op.weight)[2:], output, op.data_layout)
    strided, dilated = max(windows.strides) > 1, max(windows.dilations) > 1
    if strided and not dilated:
        phases = _Phases.of(windows)
        if phases is not None:
            return _in_phases(op, b, windows, phases)
    result = tensor_type(op.output).dtype

    def body(p: PrimBuilder, x: TensorExpr, weight: TensorExpr, bias: TensorExpr | None) -> TensorExpr:
        spread, forward = _spread_out(op, p, x, windows)
        is_known = all(isinstance(size, int) for size in windows.kernel)
        if not strided or (is_known and not any(map(_unreached, *_steps(windows)))):
            return convolve(p, spread, _flip(p, weight, op.groups), bias, forward, op.groups, "OI*", result)
        sums = convolve(p, spread, _flip(p, weight, op.groups), None, forward, op.groups, "OI*", result)

        def element(*axes: Expr) -> Expr:
            return _with_bias(_reached(sums.at(*axes), windows, axes), windows, axes, bias)

        return p.compute(shape_of(op.output), element, name="reached")

    return b.call_prim(body, op.x, op.weight, op.bias)


@dataclass(frozen=True)
class _Phases:
    """Sizes of the convolution that computes all phases."""

    taps: list[int]
    first: list[int]
    """The phases before this one, in units of the stride, are all cropped."""
    padding: tuple[int, ...]

    @staticmethod
    def of(windows: SlidingWindows) -> _Phases | None:
        """Return the phases, or None if they depend on run-time sizes."""
        strides = windows.strides
        kernel = [k for k in windows.kernel if isinstance(k, int)]
        before = [p for p in windows.begins if isinstance(p, int)]
        if len(kernel) < len(windows.kernel) or len(before) < len(windows.begins):
            return None
        phases = [
            window_phases(*dim) for dim in zip(windows.sizes, windows.counts, kernel, strides, before, strict=True)
        ]
        taps, first = [each.taps for each in phases], [each.cropped for each in phases]
        begins, ends = [each.before for each in phases], [each.after for each in phases]
        known = [end for end in ends if isinstance(end, int)]
        return _Phases(taps, first, (*begins, *known)) if len(known) == len(ends) else None


def _in_phases(op: ir.OpView, b: LegalizeBuilder, windows: SlidingWindows, phases: _Phases) -> ir.Value:
    """Emit three prim functions, as the convolution in the middle has its own schedules."""
    strides, taps, first = windows.strides, phases.taps, phases.first
    weight = b.call_prim(lambda p, w: _weight_of_phases(p, w, op.groups, strides, taps), op.weight, name="phases")
    result = b.emit(Conv, op.x, weight, padding=phases.padding, groups=op.groups, data_layout=op.data_layout)
    return b.call_prim(
        lambda p, y, bias: _interleaved(p, y, bias, op, windows, first), result, op.bias, name="interleave"
    )


def _interleaved(
    p: PrimBuilder,
    sums: TensorExpr,
    bias: TensorExpr | None,
    op: ir.OpView,
    windows: SlidingWindows,
    first: Sequence[int],
) -> TensorExpr:
    """Interleave the phases, which are contiguous as channels."""

    def element(*axes: Expr) -> Expr:
        n, oc, at = windows.split(axes)
        indices = [i + begin for i, begin in zip(at, windows.begins, strict=True)]
        phase: Expr = oc
        for position, s in zip(indices, windows.strides, strict=True):
            phase = phase * s + position % s
        where = [place // s - low for place, s, low in zip(indices, windows.strides, first, strict=True)]
        value = _reached(sums.at(*windows.join(n, phase, where)), windows, axes)
        return _with_bias(value, windows, axes, bias)

    return p.compute(shape_of(op.output), element, name="interleave")


def _steps(windows: SlidingWindows) -> tuple[Sequence[Dim], Sequence[int], Sequence[int]]:
    """Return the kernels, strides and dilations of the axes."""
    return windows.kernel, windows.strides, windows.dilations


def _unreached(kernel: Dim, stride: int, dilation: int) -> list[range]:
    """Return the ranges of remainders of the positions, divided by the stride, to which no tap contributes."""
    if not isinstance(kernel, int):
        return []
    reached = sorted({tap * dilation % stride for tap in range(min(kernel, stride))})
    return [range(a + 1, b) for a, b in pairwise((-1, *reached, stride)) if b - a > 1]


def _reached(value: Expr, windows: SlidingWindows, axes: Sequence[Expr]) -> Expr:
    """Return a sum of products, and 0 where no tap contributes: products of zeros with infinities are NaN."""
    _, _, at = windows.split(axes)
    for i, begin, kernel, stride, dilation in zip(at, windows.begins, *_steps(windows), strict=True):
        if not isinstance(kernel, int) and stride > 1 and dilation == 1:
            value = select((i + begin) % stride >= kernel, constant(0, value.dtype), value)
        for phases in _unreached(kernel, stride, dilation):
            value = select(_is_in((i + begin) % stride, phases, stride), constant(0, value.dtype), value)
    return value


def _is_in(phase: Expr, phases: range, stride: int) -> Expr:
    """Return whether a phase, which is below the stride, is in a range."""
    if len(phases) == 1:
        return phase.equals(phases.start)
    if phases.stop == stride:
        return phase >= phases.start
    return (phase >= phases.start) & (phase < phases.stop)


def _with_bias(value: Expr, windows: SlidingWindows, axes: Sequence[Expr], bias: TensorExpr | None) -> Expr:
    return value if bias is None else value + bias[windows.split(axes)[1]]


def _weight_of_phases(
    p: PrimBuilder, weight: TensorExpr, groups: int, strides: Sequence[int], taps: Sequence[int]
) -> TensorExpr:
    """Rearrange (in, out / groups, *window) to (out * phases, in / groups, *taps reversed); zero beyond the window."""
    group_in = weight.shape[0] // groups
    phases = math.prod(strides)
    beyond = any(t * s > k for t, s, k in zip(taps, strides, weight.shape[2:], strict=True))

    def element(phase_channel: Expr, ic: Expr, *at: Expr) -> Expr:
        rest: Expr = phase_channel
        inner: list[Expr] = []
        for i in reversed(range(len(strides))):
            inner.insert(0, rest % strides[i] + ((taps[i] - 1) - at[i]) * strides[i])
            rest = rest // strides[i]
        return weight.at(*_channels(weight, groups, rest, ic), *inner, outside=0.0 if beyond else None)

    return p.compute((weight.shape[1] * groups * phases, group_in, *taps), element, name="phases")


def _channels(weight: TensorExpr, groups: int, oc: Expr, ic: Expr) -> list[Expr]:
    """Return the indices in (in, out / groups) of an out channel and an in channel of its group."""
    if groups == 1:
        return [ic, oc]
    group_in, group_out = weight.shape[0] // groups, weight.shape[1]
    return [(oc // group_out) * group_in + ic, oc % group_out]


def _spread_out(
    op: ir.OpView, p: PrimBuilder, x: TensorExpr, windows: SlidingWindows
) -> tuple[TensorExpr, SlidingWindows]:
    """Insert stride - 1 zeros between the elements of x; return it with the windows of the convolution over it."""
    strides = windows.strides
    # An empty axis has no zeros between its elements either.
    sizes = tuple(D.maximum((n - 1) * s + 1, 0) if s > 1 else n for n, s in zip(windows.sizes, strides, strict=True))
    reaches: list[Dim] = [(k - 1) * d for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    extra = per_dim(op.output_padding, len(sizes), 0, 0, "output_padding")
    forward = replace(
        windows,
        sizes=sizes,
        strides=(1,) * len(sizes),
        begins=tuple(r - begin for r, begin in zip(reaches, windows.begins, strict=True)),
        ends=tuple(r - end + e for r, end, e in zip(reaches, windows.ends, extra, strict=True)),
    )
    if max(strides) == 1:
        return x, forward

    def element(*axes: Expr) -> Expr:
        n, c, at = windows.split(axes)
        steps = list(zip(at, strides, strict=True))
        hit = all_of([(i % s).equals(0) for i, s in steps if s > 1])
        value = x.at(*windows.join(n, c, [i // s if s > 1 else i for i, s in steps]))
        return select(hit, value, constant(0, x.dtype))

    channels = x.shape[1 if windows.layout == "NC*" else -1]
    return p.compute(windows.join(x.shape[0], channels, sizes), element, name="spread"), forward


def _flip(p: PrimBuilder, weight: TensorExpr, groups: int) -> TensorExpr:
    """Rearrange (in, out / groups, *window) to (out, in / groups, *window reversed)."""
    channels, group_out, *kernel = weight.shape

    def element(oc: Expr, ic: Expr, *at: Expr) -> Expr:
        mirrored = [i if size == 1 else (size - 1) - i for i, size in zip(at, kernel, strict=True)]
        return weight.at(*_channels(weight, groups, oc, ic), *mirrored)

    return p.compute((group_out * groups, channels // groups, *kernel), element, name="flip")
