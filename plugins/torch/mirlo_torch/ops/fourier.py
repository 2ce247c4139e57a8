"""Fourier transforms; PyTorch's others are decomposed into these three."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.extend.frontend import Tensor
from mirlo.extend.library import Complex, real_of_spectrum, spectrum_of_real, transform_along
from mirlo_torch.operation import AtenOperation, axis_of
from mirlo_torch.registry import complex_converter

NONE, BY_ROOT, BY_COUNT = range(3)
"""Kinds of normalization: none, by the square root of the number of elements, by that number."""


@complex_converter("aten._fft_c2c.default")
def of_complex(op: AtenOperation, x: Complex, axes: Sequence[int], normalization: int, forward: bool) -> Complex:
    parts, count = [x.re, x.im], 1
    for axis in (axis_of(each, x.rank) for each in axes):
        length = op.fixed(x.shape[axis], "a length of a transform")
        parts, count = transform_along(parts, axis, length, not forward), count * length
    return _scaled(op, parts, _factor(normalization, count, not forward))


@complex_converter("aten._fft_r2c.default")
def of_real(op: AtenOperation, x: Tensor, axes: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Convert the transform of real numbers; the last axis of the result has half of the spectrum, or all of it."""
    *outer, last = (axis_of(each, x.rank) for each in axes)
    count = length = op.fixed(x.shape[last], "a length of a transform")
    if onesided:
        order = [*(axis for axis in range(x.rank) if axis != last), last]
        spectrum = spectrum_of_real(x.permute(order), length)
        parts = [part.permute([order.index(axis) for axis in range(x.rank)]) for part in spectrum]
    else:
        parts = transform_along([x, op.constant(0, x.dtype, x.shape)], last, length, False)
    for axis in outer:
        length = op.fixed(x.shape[axis], "a length of a transform")
        parts, count = transform_along(parts, axis, length, False), count * length
    return _scaled(op, parts, _factor(normalization, count, False))


@complex_converter("aten._fft_c2r.default")
def to_real(op: AtenOperation, x: Complex, axes: Sequence[int], normalization: int, size: int) -> Tensor:
    """Convert the inverse transform to real numbers; the last axis of the input has half of the spectrum."""
    *outer, last = (axis_of(each, x.rank) for each in axes)
    parts, count = [x.re, x.im], op.fixed(size, "a length of a transform")
    for axis in outer:
        length = op.fixed(x.shape[axis], "a length of a transform")
        parts, count = transform_along(parts, axis, length, True), count * length
    order = [*(axis for axis in range(x.rank) if axis != last), last]
    length = op.fixed(size, "a length of a transform")
    half = [part.permute(order).slice(x.rank - 1, 0, length // 2 + 1) for part in parts]
    signal = real_of_spectrum(half, length).permute([order.index(axis) for axis in range(x.rank)])
    factor = _factor(normalization, count, True)
    return signal if factor == 1 else signal * factor


def _factor(normalization: int, count: int, inverse: bool) -> float:
    """Return the factor of the results: inverse transforms are already divided by the number of elements."""
    scale = {NONE: 1.0, BY_ROOT: 1 / math.sqrt(count), BY_COUNT: 1 / count}[normalization]
    return scale * count if inverse else scale


def _scaled(op: AtenOperation, parts: Sequence[Tensor], factor: float) -> Complex:
    result = Complex(*parts)
    return result if factor == 1 else result.scaled(factor)
