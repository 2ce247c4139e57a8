"""Cases of the operators of networks: products, convolutions, pools, normalizations, attention, images."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mirlo.tools.conformance.case import FLOATS, NUMERIC_TYPES, Draw, OperatorCase, case, operator, wide

_SUMMED = (*FLOATS, "i32", "i64")


@operator("matmul", kinds=_SUMMED)
def _matmul(draw: Draw) -> OperatorCase:
    x, y = draw.array(2, 5, 16), draw.array(16, 11)
    return case(x, y, expected=wide(x) @ wide(y))


@operator("matmul", kinds=_SUMMED)
def _matmul_transposed(draw: Draw) -> OperatorCase:
    x, y = draw.array(3, 16, 5), draw.array(3, 11, 16)
    expected = wide(x).swapaxes(-1, -2) @ wide(y).swapaxes(-1, -2)
    return case(x, y, transpose_lhs=True, transpose_rhs=True, expected=expected)


@operator("matmul", kinds=_SUMMED)
def _matmul_of_matrices(draw: Draw) -> OperatorCase:
    x, y = draw.array(6, 16), draw.array(16, 11)
    return case(x, y, expected=wide(x) @ wide(y))


@operator("matmul", kinds=("i8", "u8"))
def _matmul_of_bytes(draw: Draw) -> OperatorCase:
    x, y = draw.array(5, 16, low=-100, high=100), draw.array(16, 11, low=-100, high=100)
    return case(x, y, out_dtype="i32", expected=wide(x) @ wide(y))


@operator("einsum", kinds=FLOATS)
def _einsum(draw: Draw) -> OperatorCase:
    x, y = draw.array(2, 5, 16), draw.array(2, 11, 16)
    equation = "bij,bkj->bki"
    return case([x, y], equation=equation, expected=np.einsum(equation, wide(x), wide(y)))


def windows(x: np.ndarray, size: int, stride: int, padding: int, value: float = 0.0) -> np.ndarray:
    """Return the windows of an image: [N, C, H, W, size, size]."""
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)], constant_values=value)
    view = sliding_window_view(padded, (size, size), (2, 3))
    return view[:, :, ::stride, ::stride]


def convolved(x: np.ndarray, weight: np.ndarray, stride: int, padding: int, groups: int = 1) -> np.ndarray:
    patches = windows(x, weight.shape[-1], stride, padding)
    n, c, h, w, k, _ = patches.shape
    split = patches.reshape(n, groups, c // groups, h, w, k, k)
    kernels = weight.reshape(groups, -1, *weight.shape[1:])
    return np.asarray(np.einsum("ngchwij,gocij->ngohw", split, kernels).reshape(n, -1, h, w))


@operator("conv")
def _conv(draw: Draw) -> OperatorCase:
    x, weight, bias = draw.array(2, 5, 9, 8), draw.array(7, 5, 3, 3, low=-1, high=1), draw.array(7)
    expected = convolved(wide(x), wide(weight), 2, 1) + wide(bias)[:, None, None]
    return case(x, weight, bias, strides=[2, 2], padding=[1] * 4, expected=expected)


@operator("conv")
def _conv_in_groups(draw: Draw) -> OperatorCase:
    x, weight = draw.array(1, 6, 7, 7), draw.array(6, 1, 3, 3, low=-1, high=1)
    expected = convolved(wide(x), wide(weight), 1, 0, groups=6)
    return case(x, weight, None, groups=6, expected=expected)


@operator("conv")
def _conv_channels_last(draw: Draw) -> OperatorCase:
    x, weight = draw.array(1, 7, 6, 16), draw.array(3, 3, 16, 8, low=-1, high=1)
    result = convolved(wide(x).transpose(0, 3, 1, 2), wide(weight).transpose(3, 2, 0, 1), 1, 1)
    return case(
        x, weight, None, padding=[1] * 4, data_layout="N*C", kernel_layout="*IO", expected=result.transpose(0, 2, 3, 1)
    )  # fmt: skip


@operator("conv")
def _conv_out_channels_first(draw: Draw) -> OperatorCase:
    x, weight = draw.array(1, 7, 6, 8), draw.array(4, 3, 3, 8, low=-1, high=1)
    result = convolved(wide(x).transpose(0, 3, 1, 2), wide(weight).transpose(0, 3, 1, 2), 1, 1)
    return case(
        x, weight, None, padding=[1] * 4, data_layout="N*C", kernel_layout="O*I", expected=result.transpose(0, 2, 3, 1)
    )  # fmt: skip


@operator("conv")
def _conv_of_many_channels(draw: Draw) -> OperatorCase:
    x, weight = draw.array(1, 12, 12, 64), draw.array(3, 3, 64, 64, low=-1, high=1)
    result = convolved(wide(x).transpose(0, 3, 1, 2), wide(weight).transpose(3, 2, 0, 1), 1, 1)
    return case(
        x, weight, None, padding=[1] * 4, data_layout="N*C", kernel_layout="*IO", expected=result.transpose(0, 2, 3, 1)
    )  # fmt: skip


@operator("conv_transpose")
def _conv_transpose(draw: Draw) -> OperatorCase:
    x, weight = draw.array(1, 4, 5, 5), draw.array(4, 3, 3, 3, low=-1, high=1)
    spread = np.zeros((1, 4, 9, 9))
    spread[:, :, ::2, ::2] = wide(x)
    flipped = wide(weight)[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return case(x, weight, None, strides=[2, 2], expected=convolved(spread, flipped, 1, 2))


@operator("conv_weight_gradient")
def _conv_weight_gradient(draw: Draw) -> OperatorCase:
    x, gradient = draw.array(2, 3, 9, 8), draw.array(2, 4, 5, 4, low=-1, high=1)
    read = windows(wide(x), 3, 2, 1, 0)
    expected = np.einsum("nihwkl,nohw->oikl", read, wide(gradient))
    return case(x, gradient, window=[3, 3], strides=[2, 2], padding=[1] * 4, expected=expected)


@operator("conv_weight_gradient")
def _conv_weight_gradient_unit_strides(draw: Draw) -> OperatorCase:
    x, gradient = draw.array(1, 12, 12, 64), draw.array(1, 12, 12, 64, low=-1, high=1)
    read = windows(wide(x).transpose(0, 3, 1, 2), 3, 1, 1, 0)
    expected = np.einsum("nihwkl,nhwo->klio", read, wide(gradient))
    return case(
        x, gradient, window=[3, 3], padding=[1] * 4, data_layout="N*C", kernel_layout="*IO", expected=expected
    )  # fmt: skip


@operator("conv_weight_gradient")
def _conv_weight_gradient_depthwise(draw: Draw) -> OperatorCase:
    x, gradient = draw.array(2, 9, 8, 4), draw.array(2, 5, 4, 4, low=-1, high=1)
    read = windows(wide(x).transpose(0, 3, 1, 2), 3, 2, 1, 0)
    expected = np.einsum("nchwkl,nhwc->klc", read, wide(gradient))[:, :, None]
    return case(
        x, gradient, window=[3, 3], strides=[2, 2], padding=[1] * 4, groups=4, data_layout="N*C", kernel_layout="*IO",
        expected=expected,
    )  # fmt: skip


_POOL: dict[str, object] = {"kernel": [3, 3], "strides": [2, 2], "padding": [1] * 4}


@operator("max_pool", kinds=NUMERIC_TYPES)
def _max_pool(draw: Draw) -> OperatorCase:
    x = draw.array(2, 3, 9, 8)
    least = np.iinfo(np.int64).min if not draw.is_float else -np.inf
    return OperatorCase((x,), _POOL, (windows(wide(x), 3, 2, 1, least).max((-1, -2)),))


@operator("max_pool_with_indices")
def _max_pool_with_indices(draw: Draw) -> OperatorCase:
    x = draw.permuted(1, 2, 6, 6)
    patches = windows(wide(x), 2, 2, 0).reshape(1, 2, 3, 3, 4)
    inside = patches.argmax(-1)
    rows = 2 * np.arange(3)[:, None] + inside // 2
    columns = 2 * np.arange(3) + inside % 2
    place = np.arange(2)[:, None, None] * 36 + rows * 6 + columns
    return case(x, kernel=[2, 2], strides=[2, 2], expected=(patches.max(-1), place))


@operator("avg_pool")
def _avg_pool(draw: Draw) -> OperatorCase:
    x = draw.array(2, 3, 9, 8)
    count = windows(np.ones(x.shape), 3, 2, 1).sum((-1, -2))
    return OperatorCase((x,), _POOL, (windows(wide(x), 3, 2, 1).sum((-1, -2)) / count,))


@operator("lp_pool")
def _lp_pool(draw: Draw) -> OperatorCase:
    x = draw.array(2, 3, 9, 8)
    return OperatorCase((x,), _POOL, (np.sqrt((windows(wide(x), 3, 2, 1) ** 2).sum((-1, -2))),))


def normal(x: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-5) -> np.ndarray:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon))


@operator("layer_norm")
def _layer_norm(draw: Draw) -> OperatorCase:
    x, scale, bias = draw.array(3, 5, 16), draw.array(16), draw.array(16)
    return case(x, scale, bias, expected=normal(wide(x), (-1,)) * wide(scale) + wide(bias))


@operator("rms_norm")
def _rms_norm(draw: Draw) -> OperatorCase:
    x, scale = draw.array(3, 5, 16), draw.array(16)
    root = np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-5)
    return case(x, scale, expected=wide(x) / root * wide(scale))


@operator("batch_norm")
def _batch_norm(draw: Draw) -> OperatorCase:
    x, variance = draw.array(2, 4, 5, 5), draw.nonzero(4)
    scale, bias, mean = (draw.array(4) for _ in range(3))
    s, b, m, v = (wide(a)[:, None, None] for a in (scale, bias, mean, variance))
    return case(x, scale, bias, mean, variance, expected=s * (wide(x) - m) / np.sqrt(v + 1e-5) + b)


@operator("instance_norm")
def _instance_norm(draw: Draw) -> OperatorCase:
    x, scale, bias = draw.array(2, 4, 5, 5), draw.array(4), draw.array(4)
    s, b = wide(scale)[:, None, None], wide(bias)[:, None, None]
    return case(x, scale, bias, expected=normal(wide(x), (2, 3)) * s + b)


@operator("group_norm")
def _group_norm(draw: Draw) -> OperatorCase:
    x, scale, bias = draw.array(2, 4, 5, 5), draw.array(4), draw.array(4)
    s, b = wide(scale)[:, None, None], wide(bias)[:, None, None]
    normalized = normal(wide(x).reshape(2, 2, -1), (2,)).reshape(x.shape)
    return case(x, scale, bias, groups=2, expected=normalized * s + b)


@operator("lrn")
def _lrn(draw: Draw) -> OperatorCase:
    x = draw.array(2, 7, 3, 3)
    padded = np.pad(wide(x) ** 2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    sums = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return case(x, size=3, alpha=0.3, expected=wide(x) / (1 + 0.1 * sums) ** 0.75)


@operator("lp_normalize")
def _lp_normalize(draw: Draw) -> OperatorCase:
    x = draw.nonzero(4, 9)
    return case(x, p=2, expected=wide(x) / np.sqrt((wide(x) ** 2).sum(-1, keepdims=True)))


@operator("attention")
def _attention(draw: Draw) -> OperatorCase:
    query, key, value = draw.array(1, 4, 5, 8), draw.array(1, 2, 5, 8), draw.array(1, 2, 5, 6)
    q, k, v = wide(query), wide(key).repeat(2, 1), wide(value).repeat(2, 1)
    scores = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(-1, -2) / math.sqrt(8), -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    expected = raised / raised.sum(-1, keepdims=True) @ v
    return case(query, key, value, None, causal=True, expected=expected)


@operator("attention")
def _attention_behind_cache(draw: Draw) -> OperatorCase:
    query, key, value = draw.array(2, 2, 3, 8), draw.array(2, 2, 7, 8), draw.array(2, 2, 7, 8)
    scores = np.where(np.tri(3, 7, 4, dtype=bool), wide(query) @ wide(key).swapaxes(-1, -2) / math.sqrt(8), -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    expected = raised / raised.sum(-1, keepdims=True) @ wide(value)
    return case(query, key, value, None, causal=True, at_end=True, expected=expected)


@operator("attention")
def _attention_of_capped_scores(draw: Draw) -> OperatorCase:
    query, key, value = draw.array(1, 4, 3, 8), draw.array(1, 2, 5, 8), draw.array(1, 2, 5, 6)
    q, k, v = wide(query), wide(key).repeat(2, 1), wide(value).repeat(2, 1)
    scores = np.tanh(q @ k.swapaxes(-1, -2) / math.sqrt(8) / 0.5) * 0.5
    raised = np.exp(scores)
    expected = raised / raised.sum(-1, keepdims=True) @ v
    return case(query, key, value, None, softcap=0.5, expected=expected)


@operator("attention_with_sinks")
def _attention_with_sinks(draw: Draw) -> OperatorCase:
    query, key, value = draw.array(1, 4, 3, 8), draw.array(1, 2, 5, 8), draw.array(1, 2, 5, 6)
    sinks = draw.array(4)
    q, k, v = wide(query), wide(key).repeat(2, 1), wide(value).repeat(2, 1)
    raised = np.exp(q @ k.swapaxes(-1, -2) / math.sqrt(8))
    total = raised.sum(-1, keepdims=True) + np.exp(wide(sinks))[:, None, None]
    return case(query, key, value, None, sinks, expected=raised / total @ v)


def _scaled_attention(draw: Draw, has_sinks: bool) -> OperatorCase:
    query, key, value = draw.array(1, 4, 3, 8), draw.array(1, 2, 5, 8), draw.array(1, 2, 5, 6)
    scales, sinks = [draw.nonzero(1, 2, 5, 1) for _ in "kv"], draw.array(4) if has_sinks else None
    q = wide(query)
    k, v = ((wide(x) * wide(scale)).repeat(2, 1) for x, scale in zip((key, value), scales, strict=True))
    raised = np.exp(q @ k.swapaxes(-1, -2) / math.sqrt(8))
    total = raised.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(wide(sinks))[:, None, None]
    return case(query, key, value, None, *scales, sinks, expected=raised / total @ v)


@operator("attention_with_scales")
def _attention_with_scales(draw: Draw) -> OperatorCase:
    return _scaled_attention(draw, has_sinks=False)


@operator("attention_with_scales")
def _attention_with_scales_and_sinks(draw: Draw) -> OperatorCase:
    return _scaled_attention(draw, has_sinks=True)


def _paged_attention(draw: Draw, has_scales: bool) -> OperatorCase:
    query, caches = draw.array(2, 4, 1, 8), [draw.array(5, 4, 2, 8) for _ in "kv"]
    scales = [draw.nonzero(5, 4, 2, 1) if has_scales else None for _ in "kv"]
    table, lengths = np.array([[3, 0, 9], [1, 4, -2]], np.int64), np.array([10, 4], np.int64)
    gathered = []
    for cache, scale in zip(caches, scales, strict=True):
        wide_rows = wide(cache) if scale is None else wide(cache) * wide(scale)
        rows = wide_rows[np.clip(table, 0, 4)].reshape(2, 12, 2, 8).transpose(0, 2, 1, 3)
        gathered.append(np.where(np.arange(12)[:, None] < lengths[:, None, None, None], rows, 0).repeat(2, 1))
    seen = (np.arange(12) < lengths[:, None])[:, None, None]
    scores = np.where(seen, wide(query) @ gathered[0].swapaxes(-1, -2) / math.sqrt(8), -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    expected = raised / raised.sum(-1, keepdims=True) @ gathered[1]
    return case(query, *caches, table, lengths, seen, *scales, None, expected=expected)


@operator("paged_attention")
def _paged_attention_plain(draw: Draw) -> OperatorCase:
    return _paged_attention(draw, has_scales=False)


@operator("paged_attention")
def _paged_attention_with_scales(draw: Draw) -> OperatorCase:
    return _paged_attention(draw, has_scales=True)


@operator("cache_write")
def _cache_write(draw: Draw) -> OperatorCase:
    cache, new = draw.array(2, 2, 4, 8), draw.array(2, 2, 2, 8)
    positions = np.array([[1, 4], [-1, 9]], np.int64)  # rows outside are left out
    expected = np.concatenate([wide(cache), np.zeros((2, 2, 3, 8))], 2)
    expected[0][:, [1, 4]] = wide(new)[0]
    return case(cache, new, positions, shape=[2, 2, 7, 8], expected=expected)


@operator("cache_write")
def _cache_write_of_one_size(draw: Draw) -> OperatorCase:
    cache, new = draw.array(1, 3, 5, 4), draw.array(1, 3, 1, 4)
    expected = wide(cache).copy()
    expected[:, :, 3] = wide(new)[:, :, 0]
    return case(cache, new, np.array([[3]], np.int64), shape=[1, 3, 5, 4], expected=expected)


@operator("rotary_embedding")
def _rotary_embedding(draw: Draw) -> OperatorCase:
    x, angles = draw.array(1, 2, 5, 8), draw.random.uniform(-3, 3, (5, 4))
    cos, sin = (f(angles).astype(draw.kind.to_numpy()) for f in (np.cos, np.sin))
    left, right = np.split(wide(x), 2, -1)
    c, s = wide(cos), wide(sin)
    return case(x, cos, sin, expected=np.concatenate([left * c - right * s, right * c + left * s], -1))


def sampled(row: np.ndarray, size: int) -> np.ndarray:
    """Return a linear interpolation of the last dim, at the centres of pixels."""
    at = np.clip((np.arange(size) + 0.5) * row.shape[-1] / size - 0.5, 0, row.shape[-1] - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, row.shape[-1] - 1)
    return np.asarray(row[..., low] * (1 - (at - low)) + row[..., high] * (at - low))


def halved(rows: np.ndarray) -> np.ndarray:
    """Return half as many columns, without aliasing.

    Each is a triangle of four columns around the middle of a pair; the edges are repeated beyond them.
    """
    beyond = [*[(0, 0)] * (rows.ndim - 1), (1, 1)]
    around = sliding_window_view(np.pad(rows, beyond, "edge"), 4, -1)[..., ::2, :]
    return np.asarray(around @ np.array([0.125, 0.375, 0.375, 0.125]))


@operator("resize")
def _resize(draw: Draw) -> OperatorCase:
    x = draw.array(1, 2, 4, 5)
    resized = sampled(sampled(wide(x), 9).swapaxes(-1, -2), 7).swapaxes(-1, -2)
    # Places of pixels are computed in f32, as other libraries do, whatever the pixels are.
    return case(x, shape=[1, 2, 7, 9], mode="linear", tolerance=1e-6, expected=resized)


@operator("resize")
def _resize_nearest(draw: Draw) -> OperatorCase:
    x = draw.array(1, 2, 4, 5)
    return case(x, shape=[1, 2, 8, 10], expected=wide(x).repeat(2, -1).repeat(2, -2))


@operator("resize")
def _resize_antialiased(draw: Draw) -> OperatorCase:
    x = draw.array(1, 2, 4, 6)
    return case(x, shape=[1, 2, 4, 3], mode="linear", antialias=True, tolerance=1e-6, expected=halved(wide(x)))


@operator("grid_sample", kinds=("f32", "f64"))
def _grid_sample(draw: Draw) -> OperatorCase:
    x, grid = draw.array(1, 2, 5, 5), draw.array(1, 3, 4, 2, low=-0.9, high=0.9)
    at = (wide(grid) + 1) * 2
    column, row = at[..., 0], at[..., 1]
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    across, down = column - left, row - top
    w = wide(x)[0]
    upper = w[:, top, left] * (1 - across) + w[:, top, left + 1] * across
    lower = w[:, top + 1, left] * (1 - across) + w[:, top + 1, left + 1] * across
    interpolated = upper * (1 - down) + lower * down
    return case(x, grid, align_corners=True, expected=interpolated[:, 0][None])
