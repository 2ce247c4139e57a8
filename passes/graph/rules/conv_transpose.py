"""Transposed convolutions as convolutions, channels last.

With stride s, every s-th element of the result uses the same taps of the window, those s apart. So one convolution
computes all s phases as channels, and a permute interleaves them. The weight is a constant, and so is its rearranged
form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer_windows import padding_pairs, per_dim, window_phases
from mirlo.dialects.relax.slice import slice_size
from mirlo.passes.graph.requested_layouts import CHANNELS_LAST
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.graph.rules.layout import in_layout
from mirlo.passes.rules import Decline, decline, layout
from mirlo.runtime.records import dataclass

WHOLE = 2**62
"""The end of a slice that takes all that there is."""


@layout("relax.conv_transpose", priority=1)
def as_convolution(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Replace a transposed convolution with constant weight and no dilations by a convolution and a permute."""
    if not (b.given or CHANNELS_LAST).is_default or op.data_layout != "NC*":
        return decline("its layout was chosen before", data=op.data_layout)
    x, weight, out = (kind_of(v) for v in (op.x, op.weight, op.output))
    if not (weight.is_static and weight.dtype.is_float) or any(d is UNKNOWN or d == 0 for d in (*x.shape, *out.shape)):
        return decline("a dim has no name, the numbers are not floats, or there are none", x=str(x), weight=str(weight))
    rank = x.rank - 2
    strides, dilations = (per_dim(declared, rank, 1, 1, "steps") for declared in (op.strides, op.dilations))
    if op.groups != 1 or any(d != 1 for d in dilations):
        return decline("it has groups or dilations", groups=op.groups, dilations=dilations)
    if any(size < stride for size, stride in zip(weight.static_shape[2:], strides, strict=True)):
        return decline("no tap contributes to some elements", window=weight.static_shape[2:], strides=strides)
    array = b.array(op.weight)
    if array is None:
        return decline("the weight is computed at run time")
    begins = [begin for begin, _ in padding_pairs(op.padding, rank)]
    axes: list[_Axis] = []
    for dim in zip(x.shape[2:], out.shape[2:], weight.static_shape[2:], strides, begins, strict=True):
        axis = _Axis.of(*dim)
        if isinstance(axis, Decline):
            return axis
        axes.append(axis)
    phases = _phases(array, strides, [axis.taps for axis in axes])
    kind = TensorType.of(phases.shape, weight.dtype)
    kernel = b.constant(phases, kind, f"{b.name_of(op.weight)}.phases")
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
    """Zeros before the operand, and behind it."""
    after: int
    size: Dim
    """The positions at which the window is."""
    begin: int
    """Of the phases, those from here on are the result."""
    end: int
    """The first phase behind the result, from the end if sizes are known at run time only."""

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


def _phases(weight: np.ndarray, strides: tuple[int, ...], taps: list[int]) -> np.ndarray:
    """Rearrange (in, out, *window) to (*taps reversed, in, phases * out), with zeros beyond the window."""
    inputs, outputs, *window = weight.shape
    array = np.zeros((*taps, inputs, math.prod(strides), outputs), weight.dtype)
    for number, phase in enumerate(product(*(range(s) for s in strides))):
        for at in product(*(range(t) for t in taps)):
            indices = zip(phase, taps, at, strides, strict=True)
            source = tuple(p + (t - 1 - a) * s for p, t, a, s in indices)
            if all(i < k for i, k in zip(source, window, strict=True)):
                array[at][:, number] = weight.transpose(*range(2, weight.ndim), 0, 1)[source]
    return np.ascontiguousarray(array.reshape(*taps, inputs, -1))
