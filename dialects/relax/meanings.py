"""What operators mean in numpy, where that is more than one expression.

Operands of integers and bools have any width, floats any format; results are converted to the type of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.dialects.core.rank_layout import RankGroups, read_groups

if TYPE_CHECKING:
    from mirlo.dialects.core.dtypes import DType

Array = Any
ROUNDING_SHIFT = 1.5 * 2.0**23
"""Added to an f32 of less than 2^22, it leaves an integer in the low bits of the sum, rounded to even."""
choose: Any = np.where

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


@partial(np.vectorize, otypes=[np.float64])
def erfinv(x: float) -> float:
    """Return the inverse of erf by Newton's method on the side where the function is accurate."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    size = abs(x)
    value = size * math.sqrt(math.pi) / 2 if size < 1e-3 else -NormalDist().inv_cdf((1 - size) / 2) / math.sqrt(2)
    for _ in range(2):
        above = math.erf(value) - size if size < 0.5 else (1 - size) - math.erfc(value)
        value -= above * math.sqrt(math.pi) / 2 * math.exp(value * value)
    return math.copysign(value, x)


@partial(np.vectorize, otypes=[np.float64])
def lgamma(x: float) -> float:
    """Return the logarithm of |gamma(x)|, infinite at the poles."""
    is_pole = math.isinf(x) or (x <= 0 and x == math.floor(x))
    return math.inf if is_pole else math.lgamma(x)


@partial(np.vectorize, otypes=[np.float64])
def digamma(x: float) -> float:
    """Return the derivative of log gamma(x) by its asymptotic series, -inf at 0 and NaN at the other poles."""
    if x == 0 or math.isinf(x) or math.isnan(x):
        return -math.copysign(math.inf, x) if x == 0 else x if x > 0 else math.nan
    if x < 0:
        fraction = x - round(x)
        return math.nan if fraction == 0 else digamma(1 - x) - math.pi / math.tan(math.pi * fraction)
    total = 0.0
    while x < 10:
        total, x = total - 1 / x, x + 1
    square = 1 / (x * x)
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    series = sum(term * square ** (power + 1) for power, term in enumerate(terms))
    return total + math.log(x) - 0.5 / x - series


FAR = 1e4
"""From here on, two terms of the asymptotic series of Bessel functions are exact in f64 to 1e-9."""


def _mean_over_circle(x: float, function: Callable[[Array], Array]) -> float:
    """Return the mean of a periodic function of an angle by equal steps; `x` makes the function oscillate."""
    angles = np.arange(steps := 64 + 2 * int(x)) * (2 * math.pi / steps)
    return float(function(angles).mean())


def _by_size(x: float, order: int, of_size: Callable[[float], float]) -> float:
    """Return an even or odd Bessel function from its values at |x|; it is 0 at infinity."""
    if math.isnan(x) or (x == 0 and order == 1):
        return x
    if math.isinf(x):
        return 0.0
    result = of_size(abs(x))
    return -result if x < 0 and order == 1 else result


def _bessel(x: float, order: int) -> float:
    """Return the Bessel function of the first kind, by the mean of a wave."""

    def of_size(size: float) -> float:
        if size < FAR:
            return _mean_over_circle(size, lambda angle: np.cos(order * angle - size * np.sin(angle)))
        phase, slope = size - math.pi * (order / 2 + 0.25), (4 * order - 1) / (8 * size)
        return math.sqrt(2 / (math.pi * size)) * (math.cos(phase) - slope * math.sin(phase))

    return _by_size(x, order, of_size)


def _scaled_bessel(x: float, order: int) -> float:
    """Return the modified Bessel function of the first kind, times e^-|x|, by the mean of an exponential."""

    def of_size(size: float) -> float:
        if size < FAR:
            return _mean_over_circle(size, lambda angle: np.exp(size * (np.cos(angle) - 1)) * np.cos(order * angle))
        return (1 - (4 * order - 1) / (8 * size)) / math.sqrt(2 * math.pi * size)

    return _by_size(x, order, of_size)


def _modified_bessel(x: float, order: int) -> float:
    """Return the modified Bessel function of the first kind: in two steps, as e^|x| overflows before the result."""
    half = math.exp(abs(x) / 2) if abs(x) < 1400 else math.inf
    return x ** (2 - order) if math.isinf(x) else _scaled_bessel(x, order) * half * half


def _of_order(function: Callable[[float, int], float], order: int) -> Callable[[Array], Array]:
    """Return a Bessel function of arrays."""
    return np.vectorize(lambda x: function(x, order), otypes=[np.float64])


bessel_j0, bessel_j1 = _of_order(_bessel, 0), _of_order(_bessel, 1)
bessel_i0, bessel_i1 = _of_order(_modified_bessel, 0), _of_order(_modified_bessel, 1)
bessel_i0e, bessel_i1e = _of_order(_scaled_bessel, 0), _of_order(_scaled_bessel, 1)


def is_float(x: Array) -> bool:
    """Return whether the elements are floats, of numpy's own formats or others."""
    return x.dtype.kind not in "biu" and not x.dtype.name.startswith(("int", "uint"))


def widened(x: Array) -> Array:
    """Widen floats of 16 bits or less to f32, the type in which they are summed."""
    return x.astype(np.float32) if is_float(x) and x.dtype.itemsize < 4 else x


def divide(x: Array, y: Array) -> Array:
    """Divide; integers towards zero, and x / 0 is 0."""
    if is_float(x):
        return x / y
    safe = choose(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(x, safe)
    quotient = quotient + ((quotient * safe != x) & ((x < 0) != (safe < 0)))
    return choose(y == 0, np.zeros_like(quotient), quotient)


def power(x: Array, y: Array) -> Array:
    """Raise; an integer to a negative power is 0, unless it is 1 or -1."""
    if is_float(x):
        return np.power(x, y)
    raised = np.power(x, np.maximum(y, 0))
    of_unit = choose(x == 1, 1, choose(x == -1, choose(y % 2 != 0, -1, 1), 0))
    return choose(y < 0, of_unit, raised)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def elu(x: Array, alpha: float) -> Array:
    return choose(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def gelu(x: Array, *, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def shrink(x: Array, *, lambd: float, bias: float) -> Array:
    wide = x if is_float(x) else x.astype(np.float64)
    return choose(wide < -lambd, wide + bias, choose(wide > lambd, wide - bias, 0))


def clip(x: Array, *, min: float | None, max: float | None) -> Array:
    if not is_float(x):
        info = np.iinfo(x.dtype)
        low, high = (_bound(min, math.ceil, info), _bound(max, math.floor, info))
        return np.minimum(np.maximum(x, info.min if low is None else low), info.max if high is None else high)
    x = x if min is None else np.maximum(x, x.dtype.type(min))
    return x if max is None else np.minimum(x, x.dtype.type(max))


def _bound(value: float | None, inward: Callable[[float], int], info: np.iinfo) -> int | None:
    if value is None:
        return None
    if math.isinf(value):
        return info.min if value < 0 else info.max
    return int(min(max(inward(value), info.min), info.max))


def cast(x: Array, *, dtype: DType, saturate: bool) -> Array | None:
    """Convert; None for values out of range, which the operator defines and numpy leaves to the machine."""
    target = dtype.to_numpy()
    if is_float(x) and dtype.is_integer:
        if target.kind not in "iu":
            return None
        info = np.iinfo(target)
        if not (np.isfinite(x).all() and x.min(initial=0) >= info.min and x.max(initial=0) <= info.max):
            return None
    if dtype.is_float and dtype.bits <= 8:
        return None
    return x != 0 if dtype.is_bool else x.astype(target)


def bitcast(x: Array, *, dtype: DType) -> Array:
    return x != 0 if dtype.is_bool else x.view(dtype.to_numpy())


def softmax(x: Array, *, axis: int) -> Array:
    wide = widened(x)
    raised = np.exp(wide - wide.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def log_softmax(x: Array, *, axis: int) -> Array:
    wide = widened(x)
    shifted = wide - wide.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, axis: int, epsilon: float
) -> Array:
    scale, bias, mean, variance = (_by_channel(widened(v), x.ndim, axis) for v in (scale, bias, mean, variance))
    return (widened(x) - mean) * (scale / np.sqrt(variance + epsilon)) + bias


def layer_norm(x: Array, scale: Array | None, bias: Array | None, *, axis: int, epsilon: float) -> Array:
    normalized = _standardized(widened(x), tuple(range(axis % x.ndim, x.ndim)), epsilon)
    normalized = normalized if scale is None else normalized * widened(scale)
    return normalized if bias is None else normalized + widened(bias)


def rms_norm(x: Array, scale: Array | None, *, axis: int, epsilon: float) -> Array:
    wide, axes = widened(x), tuple(range(axis % x.ndim, x.ndim))
    normalized = wide / np.sqrt(np.square(wide).mean(axes, keepdims=True) + epsilon)
    return normalized if scale is None else normalized * widened(scale)


def group_norm(x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float) -> Array:
    grouped = widened(x).reshape(x.shape[0], groups, -1)
    normalized = _standardized(grouped, (2,), epsilon).reshape(x.shape)
    return normalized * _by_channel(widened(scale), x.ndim, 1) + _by_channel(widened(bias), x.ndim, 1)


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centered = x - x.mean(axes, keepdims=True)
    return centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + epsilon)


def _by_channel(vector: Array, rank: int, axis: int) -> Array:
    """Return a vector of an element per channel as one that broadcasts along the channels' axis."""
    return vector.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def lp_normalize(x: Array, *, axis: int, p: int) -> Array:
    """Divide by the norm along the axis; a row of zeros stays zero."""
    wide = widened(x)
    norm = np.abs(wide).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(wide).sum(axis, keepdims=True))
    return wide / choose(norm == 0, np.ones_like(norm), norm)


def hardmax(x: Array, *, axis: int) -> Array:
    return np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]) == np.expand_dims(
        np.argmax(x, axis), axis
    )


def expand_dims(x: Array, *, axes: Sequence[int]) -> Array:
    return np.expand_dims(x, tuple(axes))


def gather(x: Array, indices: Array, *, axis: int) -> Array:
    size = x.shape[axis]
    return np.take(x, choose(indices < 0, indices + size, indices), axis=axis, mode="clip")


def matmul(
    x: Array, y: Array, *, transpose_lhs: bool, transpose_rhs: bool, out_dtype: DType | None, activations: str
) -> Array:
    left = x.swapaxes(-1, -2) if transpose_lhs else x
    right = y.swapaxes(-1, -2) if transpose_rhs else y
    if out_dtype is not None and not is_float(x):
        left, right = left.astype(out_dtype.to_numpy()), right.astype(out_dtype.to_numpy())
    return np.matmul(widened(left), widened(right))


def einsum(xs: Sequence[Array], *, equation: str) -> Array:
    return np.einsum(equation, *map(widened, xs))


def strided_slice(
    x: Array, *, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> Array:
    cut: list[slice] = [slice(None)] * x.ndim
    for axis, first, last, stride in zip(axes, begin, end, strides or (1,) * len(axes), strict=True):
        # An end before the first element cannot be written as a non-negative index.
        cut[axis] = slice(first, None if stride < 0 and last < -x.shape[axis] else last, stride)
    return x[tuple(cut)]


def pad(x: Array, *, pads: Sequence[int], mode: str, value: float) -> Array:
    """Add and crop elements: those that are added repeat x before it is cropped."""
    begins, ends = pads[: x.ndim], pads[x.ndim :]
    widths = [(max(begin, 0), max(end, 0)) for begin, end in zip(begins, ends, strict=True)]
    numbers: dict[str, Any] = {"constant_values": x.dtype.type(value)} if mode == "constant" else {}
    padded = np.pad(x, widths, mode, **numbers) if any(map(any, widths)) else x  # type: ignore[call-overload]
    cuts = zip(begins, ends, padded.shape, strict=True)
    return padded[tuple(slice(max(-begin, 0), size - max(-end, 0)) for begin, end, size in cuts)]


def gather_nd(x: Array, indices: Array, *, batch_dims: int) -> Array:
    depth = indices.shape[-1]
    sizes = x.shape[batch_dims : batch_dims + depth]
    numbers = zip(np.moveaxis(indices, -1, 0), sizes, strict=True)
    points = [np.clip(choose(i < 0, i + size, i), 0, size - 1) for i, size in numbers]
    free = indices.ndim - 1 - batch_dims
    batch = [np.arange(x.shape[i]).reshape([-1, *[1] * (batch_dims - 1 - i + free)]) for i in range(batch_dims)]
    if not (batch or points):
        return np.broadcast_to(x, (*indices.shape[:-1], *x.shape))
    return x[tuple([*batch, *points])]


def arange(*, start: float, stop: float, step: float, dtype: DType) -> Array:
    """Count in i64 for integers, else in f64."""
    count = np.arange(max(0, math.ceil((stop - start) / step)))
    if dtype.is_integer and start.is_integer() and step.is_integer():
        return (count * int(step) + int(start)).astype(dtype.to_numpy())
    return (count * step + start).astype(dtype.to_numpy())


def arg_extreme(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the meaning of the position of an extreme: numpy's first; of NaN as well."""

    def meaning(x: Array, *, axis: int, keepdims: bool, select_last: bool) -> Array:
        if not select_last:
            return function(x, axis, keepdims=keepdims)
        return x.shape[axis] - 1 - function(np.flip(x, axis), axis, keepdims=keepdims)

    return meaning


def split(x: Array, *, axis: int, sizes: Sequence[int]) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def quantize(x: Array, scale: Array, zero_point: Array | None, *, axis: int, block: int, dtype: DType) -> Array | None:
    """Quantize in the type of the scale, at least f32; None for NaN as an integer, which depends on the machine."""
    scale = widened(scale)
    scaled = x.astype(scale.dtype) / _along(x, scale, axis, block)
    zero = None if zero_point is None else _along(x, zero_point, axis, block)
    if dtype.is_float:
        import ml_dtypes  # numpy itself has no floats of 8 bits

        bound = float(ml_dtypes.finfo(dtype.to_numpy()).max)  # type: ignore[no-untyped-call]
        shifted = scaled if zero is None else scaled + zero.astype(scaled.dtype)
        return np.clip(shifted, -bound, bound).astype(dtype.to_numpy())
    if np.isnan(scaled).any():
        return None
    rounded = np.rint(scaled).astype(np.float64)
    low, high = _integer_limits(dtype)
    return np.clip(rounded if zero is None else rounded + zero.astype(np.float64), low, high).astype(dtype.to_numpy())


def dequantize(x: Array, scale: Array, zero_point: Array | None, *, axis: int, block: int, dtype: DType) -> Array:
    """Dequantize in the wider type of the scale and the result, at least f32."""
    work = max(np.dtype(np.float32), scale.dtype, dtype.to_numpy(), key=lambda kind: kind.itemsize)
    value = x
    if zero_point is not None:
        zero = _along(x, zero_point, axis, block)
        wide = np.float32 if is_float(x) or is_float(zero_point) else np.int64 if x.dtype.itemsize > 2 else np.int32
        value = x.astype(wide) - zero.astype(wide)
    return (value.astype(work) * _along(x, scale, axis, block).astype(work)).astype(dtype.to_numpy())


def quantize_rows(x: Array, *, block: int, digits: int, offset: int) -> tuple[Array, Array, Array]:
    """Quantize each block of a row by its largest magnitude; blocks with an infinity or NaN become zeros."""
    count, depth = x.shape
    blocks = -(-depth // block)
    numbers = x if x.dtype.kind == "O" else x.astype(np.float32)
    padded = np.pad(numbers, [(0, 0), (0, blocks * block - depth)])
    rows = padded.reshape(count, blocks, block).transpose(1, 0, 2)
    unit = float(127 * 256 ** (digits - 1))
    with np.errstate(all="ignore"):
        largest = np.maximum.reduce(np.abs(rows), axis=-1)
        is_finite = ((largest > 0.0) & (largest < np.inf))[..., None]
        rounded = np.rint(rows * (rows.dtype.type(unit) / largest)[..., None])
        rest = np.where(is_finite, rounded, np.nan_to_num(rows - rows)).astype(np.int32)
    codes = []
    for _ in range(digits - 1):
        codes.append((rest << 24) >> 24)
        rest = (rest - codes[-1]) >> 8
    values = np.stack([*codes, rest])
    return values.astype(np.int8), largest / rows.dtype.type(unit), (values.sum(-1) * offset).astype(np.int32)


def unpack(x: Array, *, dtype: DType) -> Array:
    """Return elements of a few bits, the lowest of a byte first."""
    starts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    fields = (x[..., None] >> starts & np.uint8((1 << dtype.bits) - 1)).reshape(*x.shape[:-1], -1)
    if dtype.is_float:
        return fields.view(dtype.to_numpy())
    sign = 1 << (dtype.bits - 1)
    return (fields if dtype.is_unsigned else (fields ^ sign).astype(np.int8) - np.int8(sign)).astype(dtype.to_numpy())


def _integer_limits(dtype: DType) -> tuple[int, int]:
    if dtype.is_unsigned:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def requantize(
    x: Array,
    multiplier: Array,
    multiplier_low: Array,
    shift: Array,
    addend_low: Array,
    addend: Array | None,
    *,
    zero_point: int,
    min: int,
    max: int,
    dtype: DType,
) -> Array:
    factor = multiplier.astype(np.float64) + multiplier_low
    offset = (shift.astype(np.float64) - ROUNDING_SHIFT) + addend_low + (0 if addend is None else addend)
    value = x * factor + offset
    return np.asarray(np.clip(np.rint(value) + zero_point, min, max)).astype(dtype.to_numpy())


def rescale(
    x: Array,
    multiplier: Array,
    shift: Array,
    *,
    input_zero: int,
    zero_point: int,
    double_round: bool,
    dtype: DType,
) -> Array:
    value, count = x.astype(np.int64) - input_zero, np.asarray(shift, np.int64)
    total = value * multiplier.astype(np.int64) + np.left_shift(np.int64(1), count - 1)
    if double_round:
        total += np.where(count > 31, np.where(value < 0, -(1 << 30), 1 << 30), 0)
    limits = np.iinfo(dtype.to_numpy())
    return np.asarray(np.clip((total >> count) + zero_point, limits.min, limits.max)).astype(dtype.to_numpy())


def _along(x: Array, parameter: Array, axis: int, block: int) -> Array:
    """Expand a scale or zero point (per tensor, per position along the axis, or per block) to the shape of x."""
    axis = axis % max(x.ndim, 1)
    if block:
        return np.repeat(parameter, block, axis).take(range(x.shape[axis]), axis)
    return parameter if parameter.ndim == 0 else parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def depth_to_space(x: Array, *, block: int, mode: str) -> Array:
    batch, channels, height, width = x.shape
    depth = channels // block**2
    split_ = (block, block, depth) if mode == "DCR" else (depth, block, block)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    moved = x.reshape(batch, *split_, height, width).transpose(order)
    return moved.reshape(batch, depth, height * block, width * block)


def space_to_depth(x: Array, *, block: int) -> Array:
    batch, channels, height, width = x.shape
    rows, columns = height // block, width // block
    moved = x.reshape(batch, channels, rows, block, columns, block).transpose(0, 3, 5, 1, 2, 4)
    return moved.reshape(batch, channels * block**2, rows, columns)


def one_hot(indices: Array, values: Array, *, depth: int, axis: int) -> Array:
    position = choose(indices < 0, indices + depth, indices)
    hot = np.expand_dims(position, axis) == np.arange(depth).reshape(
        [-1 if i == axis % (indices.ndim + 1) else 1 for i in range(indices.ndim + 1)]
    )
    return choose(hot, values[1], values[0])


def all_reduce(
    xs: Sequence[Array], *, ranks: int, groups: Sequence[int] = (), group_size: int = 0, reduction: str = "add"
) -> list[Array]:
    """Return the combined arrays of the ranks of each group, for each rank."""
    return _by_group(xs, read_groups(ranks, groups, group_size), lambda own: [_combined(own, reduction)] * len(own))


def all_gather(
    xs: Sequence[Array], *, ranks: int, axis: int, groups: Sequence[int] = (), group_size: int = 0
) -> list[Array]:
    """Return the arrays of the ranks of each group joined along an axis, for each rank."""
    return _by_group(xs, read_groups(ranks, groups, group_size), lambda own: [np.concatenate(own, axis)] * len(own))


def reduce_scatter(
    xs: Sequence[Array],
    *,
    ranks: int,
    axis: int,
    groups: Sequence[int] = (),
    group_size: int = 0,
    reduction: str = "add",
) -> list[Array]:
    """Return the parts of the combined arrays of the ranks of each group."""
    return _by_group(
        xs,
        read_groups(ranks, groups, group_size),
        lambda own: list(np.split(_combined(own, reduction), len(own), axis)),
    )


def all_to_all(
    xs: Sequence[Array],
    *,
    ranks: int,
    split_axis: int,
    concat_axis: int,
    groups: Sequence[int] = (),
    group_size: int = 0,
) -> list[Array]:
    """Return, for each rank, its part of the array of every rank of its group, joined."""

    def exchanged(own: list[Array]) -> list[Array]:
        parts = [np.split(x, len(own), split_axis) for x in own]
        return [np.concatenate([each[place] for each in parts], concat_axis) for place in range(len(own))]

    return _by_group(xs, read_groups(ranks, groups, group_size), exchanged)


def collective_permute(xs: Sequence[Array], *, ranks: int, pairs: Sequence[int]) -> list[Array]:
    """Return, for each rank, the array of its source, or zeros."""
    sources = dict(zip(pairs[1::2], pairs[::2], strict=True))
    return [xs[sources[rank]] if rank in sources else np.zeros_like(xs[rank]) for rank in range(ranks)]


def to_parts(xs: Sequence[Array], *, ranks: int, parts: Sequence[int], order: Sequence[int]) -> list[Array]:
    """Return each rank's part of its own array."""
    return [xs[rank][_tile(xs[rank].shape, parts, order, rank)] for rank in range(ranks)]


def from_parts(xs: Sequence[Array], *, ranks: int, parts: Sequence[int], order: Sequence[int]) -> list[Array]:
    """Return the array of which all ranks have parts, for each rank."""
    whole = np.zeros([dim * count for dim, count in zip(xs[0].shape, parts, strict=True)], xs[0].dtype)
    for rank in range(ranks):
        whole[_tile(whole.shape, parts, order, rank)] = xs[rank]
    return [whole] * ranks


def _tile(shape: Sequence[int], parts: Sequence[int], order: Sequence[int], rank: int) -> tuple[slice, ...]:
    """Return the part of an array that a rank has."""
    copies = len(order) // math.prod(parts)
    place = np.unravel_index(list(order).index(rank) // copies, tuple(parts)) if parts else ()
    sizes = [dim // count for dim, count in zip(shape, parts, strict=True)]
    return tuple(slice(int(at) * size, (int(at) + 1) * size) for at, size in zip(place, sizes, strict=True))


def rank_id(*, ranks: int) -> list[Array]:
    """Return the number of each rank."""
    return [np.array(rank, np.uint32) for rank in range(ranks)]


def _by_group(xs: Sequence[Array], groups: RankGroups, exchange: Callable[[list[Array]], list[Array]]) -> list[Array]:
    results: dict[int, Array] = {}
    for group in groups:
        results.update(zip(group, exchange([xs[rank] for rank in group]), strict=True))
    return [results[rank] for rank in range(len(xs))]


_COMBINATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def _combined(xs: Sequence[Array], reduction: str) -> Array:
    """Combine arrays in their order, in f32 for floats of 16 bits and fewer."""
    is_narrow = xs[0].dtype.kind not in "biu" and xs[0].dtype.itemsize < 4
    wide = [x.astype(np.float32) if is_narrow else x for x in xs]
    combination = _COMBINATIONS[reduction]
    total = wide[0]
    for each in wide[1:]:
        total = combination(total, each)
    return total.astype(xs[0].dtype)
