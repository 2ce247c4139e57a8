"""Transposed convolutions as convolutions, channels last.

With strides of 1 it is a convolution with reversed windows. With stride s, every s-th element of the result uses the
same taps of the window, those s apart. So one convolution computes all s phases as channels, and a permute interleaves
them. Where each channel has a window of its own, zeros are put between the elements of the operand instead. A constant
weight is rearranged when compiling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import padding_pairs, per_dim, window_phases
from mirlo.dialects.relax.slice import slice_size
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.requested_layouts import CHANNELS_LAST
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.graph.rules.layout import in_layout
from mirlo.passes.rules import Decline, decline, layout
from mirlo.runtime.records import dataclass

WHOLE = 2**62
"""The end of a slice that takes all that there is."""


@layout("relax.conv_transpose", priority=1)
def as_convolution(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Replace a transposed convolution by a convolution with a rearranged weight, and a permute of its phases."""
    if not (b.given or CHANNELS_LAST).is_default or op.data_layout != "NC*":
        return decline("its layout was chosen before", data=op.data_layout)
    x, weight, out = (kind_of(v) for v in (op.x, op.weight, op.output))
    if not (weight.is_static and weight.dtype.is_float) or any(d is UNKNOWN or d == 0 for d in (*x.shape, *out.shape)):
        return decline("a dim has no name, the numbers are not floats, or there are none", x=str(x), weight=str(weight))
    strides, dilations, extra = (
        per_dim(declared, x.rank - 2, default, default, "steps")
        for declared, default in ((op.strides, 1), (op.dilations, 1), (op.output_padding, 0))
    )
    if any(
        (size - 1) * dilation + 1 < stride
        for size, stride, dilation in zip(weight.static_shape[2:], strides, dilations, strict=True)
    ):
        return decline("no tap contributes to some elements", window=weight.static_shape[2:], strides=strides)
    if all(stride == 1 for stride in strides):
        return _with_steps_of_one(op, b, op.x, dilations, extra)
    if op.groups == x.shape[1] == weight.static_shape[0] and weight.static_shape[1] == 1 and max(dilations) == 1:
        less = [more - (stride - 1) for more, stride in zip(extra, strides, strict=True)]
        return _with_steps_of_one(op, b, _spread(b, op.x, strides), dilations, less)
    if op.groups != 1 or any(d != 1 for d in dilations):
        return decline("it has groups or dilations", groups=op.groups, dilations=dilations)
    return _in_phases(op, b, strides)


def _with_steps_of_one(
    op: ir.OpView, b: Rewriter, x: ir.Value, dilations: tuple[int, ...], extra: Sequence[int]
) -> Decline | ir.Value:
    """Return the convolution of an operand with the reversed windows of a weight, its channels exchanged."""
    inputs, outputs, *window = kind_of(op.weight).static_shape
    rank, groups = len(window), op.groups
    reaches = [(size - 1) * dilation for size, dilation in zip(window, dilations, strict=True)]
    pads = padding_pairs(op.padding, rank)
    begins = [reach - begin for reach, (begin, _) in zip(reaches, pads, strict=True)]
    ends = [reach - after + more for reach, (_, after), more in zip(reaches, pads, extra, strict=True)]
    if any(not isinstance(pad, int) or pad < 0 for pad in (*begins, *ends)):
        return decline("it crops more than its windows reach", begins=begins, ends=ends)
    weight = op.weight
    if max(window) > 1:
        weight = b.emit(OPS["reverse"], weight, axes=list(range(2, 2 + rank)))
    if groups > 1:
        weight = b.emit(OPS["reshape"], weight, shape=(groups, inputs // groups, outputs, *window))
        weight = b.emit(OPS["permute"], weight, axes=[0, 2, 1, *range(3, 3 + rank)])
        weight = b.emit(OPS["reshape"], weight, shape=(groups * outputs, inputs // groups, *window))
    else:
        weight = b.emit(OPS["permute"], weight, axes=[1, 0, *range(2, 2 + rank)])
    attributes = {"padding": [*begins, *ends], "dilations": dilations, "groups": groups}
    if is_constant(op.weight):
        data, weight = in_layout(x, "NC*", "N*C", b), b.emit(OPS["permute"], weight, axes=[*range(2, 2 + rank), 1, 0])
        result = b.emit(OPS["conv"], data, weight, op.bias, data_layout="N*C", kernel_layout="*IO", **attributes)
        result = in_layout(result, "N*C", "NC*", b)
    else:  # a rule of convolutions chooses its layout
        result = b.emit(OPS["conv"], x, weight, op.bias, **attributes)
    if kind_of(result) != kind_of(op.output):
        return decline("its size is known at run time only", result=str(kind_of(result)))
    return result


def _spread(b: Rewriter, x: ir.Value, strides: Sequence[int]) -> ir.Value:
    """Insert zeros after each element along the spatial dims, so that the elements are a stride apart."""
    batch, channels, *sizes = kind_of(x).shape
    rank = len(sizes)
    pairs = [each for size in sizes for each in (size, 1)]
    ends = [each for stride in strides for each in (0, stride - 1)]
    result = b.emit(OPS["reshape"], x, shape=(batch, channels, *pairs))
    result = b.emit(OPS["pad"], result, pads=[0] * (2 + 2 * rank) + [0, 0, *ends])
    whole = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    return b.emit(OPS["reshape"], result, shape=(batch, channels, *whole))


def _in_phases(op: ir.OpView, b: Rewriter, strides: tuple[int, ...]) -> Decline | ir.Value:
    """Return the convolution that computes all phases as channels, which a permute interleaves."""
    x, weight, out = (kind_of(v) for v in (op.x, op.weight, op.output))
    rank = x.rank - 2
    begins = [begin for begin, _ in padding_pairs(op.padding, rank)]
    axes: list[_Axis] = []
    for dim in zip(x.shape[2:], out.shape[2:], weight.static_shape[2:], strides, begins, strict=True):
        axis = _Axis.of(*dim)
        if isinstance(axis, Decline):
            return axis
        axes.append(axis)
    kernel = _phases(b, op.weight, strides, [axis.taps for axis in axes])
    padding = (*(axis.before for axis in axes), *(axis.after for axis in axes))
    data = in_layout(op.x, "NC*", "N*C", b)
    result = b.emit(OPS["conv"], data, kernel, None, padding=padding, data_layout="N*C", kernel_layout="*IO")
    sizes = [axis.size for axis in axes]
    result = _interleaved(b, result, (x.shape[0], *sizes), strides, weight.static_shape[1])
    result = b.emit(
        OPS["strided_slice"], result, axes=list(range(1, 1 + rank)), begin=[axis.begin for axis in axes],
        end=[axis.end for axis in axes], strides=[1] * rank,
    )  # fmt: skip
    if op.bias is not None:
        result = b.emit(OPS["add"], result, op.bias)
    return in_layout(result, "N*C", "NC*", b)


@dataclass(frozen=True)
class _Axis:
    """A spatial dim of the convolution that computes all phases, and the part of these that is the result."""

    taps: int
    before: int
    """Zeros before the operand, and after it."""
    after: int
    size: Dim
    """The positions at which the window is."""
    begin: int
    """Of the phases, those from here on are the result."""
    end: int
    """The first phase after the result, from the end if sizes are known at run time only."""

    @staticmethod
    def of(size: Dim, count: Dim, kernel: int, stride: int, begin: int) -> _Axis | Decline:
        """Return the dim for an operand and a result of these sizes, of which the first `begin` phases are cropped."""
        phases = window_phases(size, count, kernel, stride, begin)
        taps, before, after = phases.taps, phases.before, phases.after
        first = begin - phases.cropped * stride
        positions = size + before + after - taps + 1
        end = first + count if isinstance(count, int) else first + count - positions * stride
        if isinstance(after, int) and isinstance(end, int) and D.is_nonnegative(positions):
            end = end or WHOLE
            if slice_size(positions * stride, first, end, 1) == count:
                return _Axis(taps, before, after, positions, first, end)
        return decline("its crop depends on sizes that are known at run time only", size=size, result=count)


def _interleaved(
    b: Rewriter, phases: ir.Value, outer: Sequence[Dim], strides: Sequence[int], channels: int
) -> ir.Value:
    """Rearrange [batch, *sizes, phases * channels] to [batch, *(sizes * strides), channels]."""
    (batch, *sizes), rank = outer, len(strides)
    result = b.emit(OPS["reshape"], phases, shape=(batch, *sizes, *strides, channels))
    pairs = [axis for i in range(rank) for axis in (1 + i, 1 + rank + i)]
    result = b.emit(OPS["permute"], result, axes=[0, *pairs, 1 + 2 * rank])
    whole = (n * s for n, s in zip(sizes, strides, strict=True))
    return b.emit(OPS["reshape"], result, shape=(batch, *whole, channels))


def _phases(b: Rewriter, weight: ir.Value, strides: tuple[int, ...], taps: list[int]) -> ir.Value:
    """Rearrange (in, out, *window) to (*taps reversed, in, phases * out), with zeros beyond the window."""
    inputs, outputs, *window = kind_of(weight).static_shape
    rank = len(window)
    missing = [t * s - size for t, s, size in zip(taps, strides, window, strict=True)]
    if any(missing):
        weight = b.emit(OPS["pad"], weight, pads=[0] * (2 + rank) + [0, 0, *missing])
    pairs = [each for pair in zip(taps, strides, strict=True) for each in pair]
    result = b.emit(OPS["reshape"], weight, shape=(inputs, outputs, *pairs))
    of_taps, of_phases = [2 + 2 * i for i in range(rank)], [3 + 2 * i for i in range(rank)]
    result = b.emit(OPS["reverse"], result, axes=of_taps)
    result = b.emit(OPS["permute"], result, axes=[*of_taps, 0, *of_phases, 1])
    return b.emit(OPS["reshape"], result, shape=(*taps, inputs, math.prod(strides) * outputs))
