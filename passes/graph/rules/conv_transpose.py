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
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer_windows import padding_pairs, per_dim
from mirlo.passes.graph.requested_layouts import CHANNELS_LAST
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.graph.rules.layout import in_layout
from mirlo.passes.rules import Decline, decline, layout


@layout("relax.conv_transpose", priority=1)
def as_convolution(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Replace a transposed convolution with constant weight and no dilations by a convolution and a permute."""
    if not (b.given or CHANNELS_LAST).is_default or op.data_layout != "NC*":
        return decline("its layout was chosen before", data=op.data_layout)
    x, weight, out = (kind_of(v) for v in (op.x, op.weight, op.output))
    if not (x.is_static and out.is_static and weight.dtype.is_float) or 0 in (*x.static_shape, *out.static_shape):
        return decline("a shape is known at run time only, or the numbers are not floats")
    rank = x.rank - 2
    strides, dilations = (per_dim(declared, rank, 1, 1, "steps") for declared in (op.strides, op.dilations))
    if op.groups != 1 or any(d != 1 for d in dilations):
        return decline("it has groups or dilations", groups=op.groups, dilations=dilations)
    array = b.array(op.weight)
    if array is None:
        return decline("the weight is computed at run time")
    sizes, counts, kernel = x.static_shape[2:], out.static_shape[2:], weight.static_shape[2:]
    begins = [begin for begin, _ in padding_pairs(op.padding, rank)]
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    # The phases before `low`, in units of the stride, are all cropped.
    lows = [min(p // s, t - 1) for p, s, t in zip(begins, strides, taps, strict=True)]
    lasts = [(n + p - 1) // s - low for n, p, s, low in zip(counts, begins, strides, lows, strict=True)]
    before = [t - 1 - low for t, low in zip(taps, lows, strict=True)]
    after = [max(0, last + t - n - p) for last, t, n, p in zip(lasts, taps, sizes, before, strict=True)]
    made_sizes = [n + p + q - t + 1 for n, p, q, t in zip(sizes, before, after, taps, strict=True)]

    phases = _phases(array, strides, taps)
    kind = TensorType.of(phases.shape, weight.dtype)
    kernel_value = b.constant(phases, kind, f"{b.name_of(op.weight)}.phases")
    data = in_layout(op.x, "NC*", "N*C", b)
    result = b.emit(
        OPS["conv"], data, kernel_value, None, padding=(*before, *after), data_layout="N*C", kernel_layout="*IO"
    )
    result = _interleaved(b, result, (x.static_shape[0], *made_sizes), strides, weight.static_shape[1])
    first = [p - low * s for p, low, s in zip(begins, lows, strides, strict=True)]
    stops = [p + n for p, n in zip(first, counts, strict=True)]
    result = b.emit(
        OPS["strided_slice"], result, axes=list(range(1, 1 + rank)), begin=first, end=stops, strides=[1] * rank
    )
    if op.bias is not None:
        result = b.emit(OPS["add"], result, op.bias)
    return in_layout(result, "N*C", "NC*", b)


def _interleaved(
    b: Rewriter, phases: ir.Value, outer: Sequence[int], strides: Sequence[int], channels: int
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
