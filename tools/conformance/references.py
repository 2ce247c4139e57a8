"""The meanings in numpy of operators whose classes have none, and more cases of them than the support matrix shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.dialects.relax.infer import CHANNELS_FIRST, kernel_permutation, padding_pairs, per_dim
from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.tools.conformance.case import ANY, FLOATS, Draw, OperatorCase, UndefinedResult, reference, varied

COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
"""How a node compares a feature with its threshold, in the order of `relax.tree_ensemble`."""


def windows_of(
    x: np.ndarray,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    fill: float = 0,
) -> np.ndarray:
    """Return the windows of images [N, C, *spatial]: [N, C, *positions, *window]."""
    count = x.ndim - 2
    steps, holes = per_dim(strides, count, 1, 1, "strides"), per_dim(dilations, count, 1, 1, "dilations")
    padded = np.pad(x, [(0, 0), (0, 0), *padding_pairs(padding, count)], constant_values=fill)
    extents = [(size - 1) * hole + 1 for size, hole in zip(window, holes, strict=True)]
    view = sliding_window_view(padded, extents, tuple(range(2, x.ndim)))
    positions = tuple(slice(None, None, step) for step in steps)
    inside = tuple(slice(None, None, hole) for hole in holes)
    index = (slice(None), slice(None), *positions, *inside)
    return np.asarray(view[index])


@reference("conv")
def conv(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: DType | None,
) -> np.ndarray:
    """Return the sums of products of windows and kernels."""
    images = x if data_layout == CHANNELS_FIRST else np.moveaxis(x, -1, 1)
    kernels = weight.transpose(kernel_permutation(kernel_layout, "OI*", weight.ndim))
    patches = windows_of(images, kernels.shape[2:], strides, padding, dilations)
    batch, channels, *rest = patches.shape
    positions, depth = rest[: x.ndim - 2], channels // groups * int(np.prod(kernels.shape[2:]))
    split = patches.reshape(batch, groups, channels // groups, int(np.prod(positions)), -1)
    columns = split.swapaxes(2, 3).reshape(batch, groups, -1, depth)
    grouped = kernels.reshape(groups, -1, depth).swapaxes(1, 2)
    # Sums of products of bytes are exact in f64, whose products are fast.
    result = (columns.astype(np.float64) @ grouped.astype(np.float64)).astype(x.dtype)
    result = result.swapaxes(2, 3).reshape(batch, kernels.shape[0], *positions)
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * len(positions))
    return result if data_layout == CHANNELS_FIRST else np.moveaxis(result, 1, -1)


@reference("quantize")
def quantize(
    x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None, *, axis: int, block: int, dtype: DType
) -> np.ndarray | None:
    """Return round(x / scale) + zero point, saturated."""
    if not dtype.is_integer or dtype.bits < 8:
        return None
    scale, offset = _along(x, scale, axis, block), _along(x, zero_point, axis, block)
    limits = np.iinfo(dtype.to_numpy())
    return np.asarray(np.clip(np.rint(x / scale) + offset, limits.min, limits.max))


@reference("dequantize")
def dequantize(
    x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None, *, axis: int, block: int, dtype: DType
) -> np.ndarray | None:
    """Return (x - zero point) * scale; of floats of 8 bits, the operator's own meaning."""
    if x.dtype.kind not in "iu":
        return None
    return np.asarray((x - _along(x, zero_point, axis, block)) * _along(x, scale, axis, block).astype(np.float64))


def _along(x: np.ndarray, parameter: np.ndarray | None, axis: int, block: int) -> np.ndarray:
    """Return a scale or zero point (of a tensor, of positions along the axis, of blocks) that broadcasts to x."""
    if parameter is None:
        return np.zeros((), np.int64)
    if block:
        return np.asarray(np.repeat(parameter, block, axis).take(range(x.shape[axis]), axis))
    if not parameter.ndim:
        return parameter
    return parameter.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


@reference("einsum")
def einsum(xs: list[np.ndarray], *, equation: str, out_dtype: DType | None = None) -> np.ndarray:
    """Return the result of numpy's `einsum`."""
    return np.asarray(np.einsum(equation, *xs))


@reference("max_pool")
def max_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool,
    data_layout: str,
) -> np.ndarray | None:
    """Return the maximum of each window."""
    if ceil_mode or data_layout != CHANNELS_FIRST:
        return None
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(np.int64).min
    return np.asarray(windows_of(x, kernel, strides, padding, dilations, least).max(tuple(range(-len(kernel), 0))))


@reference("tree_ensemble")
def tree_ensemble(
    x: np.ndarray,
    thresholds: np.ndarray,
    nodes: np.ndarray,
    roots: np.ndarray,
    weights: np.ndarray,
    *,
    mode: int,
    aggregate: str,
    depth: int = 0,
) -> np.ndarray:
    """Return the leaves that each row reaches, combined; raise UndefinedResult where it reaches none in `depth`."""
    own = nodes[:, 1]
    how = own if mode < 0 else (mode & 7) | (own & 8) if mode & NAN_BY_NODE else np.full_like(own, mode)
    values = x[:, nodes[:, 0].clip(0, x.shape[1] - 1)]
    tests = np.stack([compared(values, thresholds) for compared in COMPARISONS])
    holds = np.take_along_axis(tests, np.broadcast_to(how & 7, values.shape)[None].astype(np.int64), 0)[0]
    holds |= np.isnan(values) & ((how & 8) != 0)
    following = np.where(holds, nodes[:, 2], nodes[:, 3])  # of each row, at each node
    at = np.broadcast_to(roots, (len(x), len(roots))).astype(np.int64)
    for _ in range(depth or len(nodes)):
        inner = np.take_along_axis(following, at.clip(0, len(nodes) - 1), 1)
        at = np.where(at >= 0, inner, at)
    if (at >= 0).any() and depth:
        raise UndefinedResult("a path of 'relax.tree_ensemble' has more nodes than its depth")
    if (at >= 0).any():
        raise UndefinedResult("the nodes of 'relax.tree_ensemble' form a cycle")
    leaves = weights[(-1 - at).clip(0, len(weights) - 1)]
    if aggregate == "sum":
        return np.asarray(leaves.sum(1))
    return np.asarray(leaves.min(1) if aggregate == "min" else leaves.max(1))


def _vary_conv(
    x: tuple[int, ...], weight: tuple[int, ...], bias: bool = False, kinds: tuple[str, ...] = FLOATS, **options: object
) -> None:
    """Add a convolution with these shapes and attributes."""

    @varied("conv", kinds=kinds)
    def make(draw: Draw) -> OperatorCase:
        is_byte = not draw.is_float
        channels = draw.sizes((weight[0],))[0]
        data = draw.array(*x, low=-100, high=100) if is_byte else draw.array(*x)
        # A byte's kernel is signed: as quantized models have it.
        kernel_draw = Draw(dtype("i8"), draw.random, draw.tile, draw.small, draw.beyond) if is_byte else draw
        kernel = kernel_draw.array(*weight, low=-100, high=100) if is_byte else draw.array(*weight, low=-1, high=1)
        shift = draw.random.integers(-2000, 2000, channels).astype(np.int32) if is_byte else draw.array(channels)
        attributes = {**options, **({"out_dtype": "i32"} if is_byte else {})}
        operands = (data, kernel, shift if bias else None)
        return OperatorCase(operands, attributes, ())


BYTES = ("i8", "u8")
for _bias in (False, True):
    _vary_conv((2, 5, 9, 8), (7, 5, 3, 3), _bias, kinds=(*FLOATS, *BYTES))
    _vary_conv((1, 4, 6, 7), (6, 4, 1, 1), _bias, kinds=(*FLOATS, *BYTES))
    _vary_conv((2, 5, 9, 8), (7, 5, 3, 2), _bias, kinds=(*FLOATS, *BYTES), strides=(2, 1))
    _vary_conv((3, 5, 8, 9), (4, 5, 2, 3), _bias, kinds=(*FLOATS, *BYTES), strides=(2, 2))
    _vary_conv((2, 5, 9, 8), (7, 5, 3, 3), _bias, kinds=(*FLOATS, *BYTES), dilations=(2, 1))
    _vary_conv((2, 5, 9, 8), (7, 5, 3, 3), _bias, padding=(1, 0, 2, 1))
    _vary_conv((1, 4, 6, 7), (6, 4, 3, 3), _bias, padding=(1, 1, 1, 1))
    _vary_conv((2, 6, 7, 5), (4, 3, 3, 2), _bias, groups=2)
    _vary_conv((1, 8, 9, 8), (8, 1, 3, 3), _bias, kinds=(*FLOATS, *BYTES), groups=8)
_vary_conv((2, 16, 7, 5), (16, 16, 3, 2))
_vary_conv((2, 5, 9), (7, 5, 3), strides=(2,))


@varied("matmul", kinds=FLOATS)
def _matmul_of_a_vector(draw: Draw) -> OperatorCase:
    x, y = draw.array(1, 16), draw.array(16, 11)
    return OperatorCase((x, y), {}, ())


@varied("matmul", kinds=FLOATS)
def _matmul_of_squares(draw: Draw) -> OperatorCase:
    x, y = draw.array(12, 12), draw.array(12, 12)
    return OperatorCase((x, y), {}, ())


@varied("matmul", kinds=FLOATS)
def _matmul_of_a_transposed(draw: Draw) -> OperatorCase:
    x, y = draw.array(6, 16), draw.array(11, 16)
    return OperatorCase((x, y), {"transpose_rhs": True}, ())


@varied("matmul", kinds=BYTES)
def _matmul_of_bytes(draw: Draw) -> OperatorCase:
    x = draw.array(6, 16, low=-100, high=100)
    y = Draw(dtype("i8"), draw.random, draw.tile, draw.small, draw.beyond).array(16, 11, low=-100, high=100)
    return OperatorCase((x, y), {"out_dtype": "i32"}, ())


@varied("max_pool", kinds=(*FLOATS, *BYTES))
def _max_pool_of_one_image(draw: Draw) -> OperatorCase:
    return OperatorCase((draw.array(1, 8, 9, 8),), {"kernel": (2, 2), "strides": (2, 2)}, ())


def _vary_rescale(shape: tuple[int, ...], target: str, input_zero: int, columns: tuple[int, ...]) -> None:
    """Add a scaling of integers, by one multiplier or by one for each column."""

    @varied("rescale", kinds=("i8", "i32"))
    def make(draw: Draw) -> OperatorCase:
        multiplier = draw.random.integers(1 << 30, (1 << 31) - 1, columns).astype(np.int32)
        shift = np.full(columns, 20 if target == "i32" else 33, np.int32)
        zero = input_zero if draw.kind.bits == 8 else 0
        data = draw.array(*shape, low=-100, high=100)
        return OperatorCase((data, multiplier, shift), {"dtype": target, "input_zero": zero}, ())


for _target in ("i8", "i32"):
    _vary_rescale((1, 6, 5, 8), _target, -3, ())
    _vary_rescale((1, 6, 5, 8), _target, 4, (8,))


@varied("strided_slice", kinds=ANY)
def _slice_forwards(draw: Draw) -> OperatorCase:
    return OperatorCase((draw.array(4, 6),), {"axes": (1,), "begin": (1,), "end": (5,), "strides": (1,)}, ())


@varied("strided_slice", kinds=ANY)
def _slice_forwards_in_steps(draw: Draw) -> OperatorCase:
    return OperatorCase((draw.array(2, 7, 6),), {"axes": (-1,), "begin": (0,), "end": (6,), "strides": (2,)}, ())


@varied("gather", kinds=ANY)
def _gather_of_one_position(draw: Draw) -> OperatorCase:
    return OperatorCase((draw.array(4, 6), draw.ints(-1, 1, 1)), {"axis": 1}, ())


def _vary_quantize(kind: str, vector: bool, has_zero: bool) -> None:
    @varied("quantize", kinds=("f32",))
    def make(draw: Draw) -> OperatorCase:
        x, scale = draw.array(4, 37), draw.nonzero(*([4] if vector else []), low=0.01, high=0.05)
        zero = draw.random.integers(0 if kind == "u8" else -9, 9, scale.shape).astype(dtype(kind).to_numpy())
        operands = (x, np.asarray(scale), np.asarray(zero) if has_zero else None)
        attributes = {"axis": 0, "dtype": kind}
        return OperatorCase(operands, attributes, ())


for _kind in BYTES:
    for _is_vector in (False, True):
        for _has_zero in (False, True):
            _vary_quantize(_kind, _is_vector, _has_zero)


def _vary_dequantize(vector: bool) -> None:
    @varied("dequantize", kinds=BYTES)
    def make(draw: Draw) -> OperatorCase:
        x = draw.array(4, 37, low=-50, high=50)
        scale = draw.random.uniform(0.01, 0.05, [4] if vector else []).astype(np.float32)
        zero = draw.random.integers(0, 9, scale.shape).astype(x.dtype)
        return OperatorCase((x, scale, np.asarray(zero)), {"axis": 0}, ())


_vary_dequantize(False)
_vary_dequantize(True)
