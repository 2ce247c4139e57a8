"""Gradients that PyTorch computes by kernels of its own, expressed by other operators."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mirlo_torch.registry import decomposition

if TYPE_CHECKING:
    import torch


@decomposition("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, result: torch.Tensor,
    logarithms: torch.Tensor, dropout: float, is_causal: bool, *, attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Compute the gradients of attention from its operands alone: forward has to save no logarithms."""
    import torch

    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    q, g = query.to(wide), grad.to(wide)
    repeats = query.shape[-3] // key.shape[-3]
    k, v = (each.to(wide).repeat_interleave(repeats, -3) if repeats != 1 else each.to(wide) for each in (key, value))
    scores = (q @ k.transpose(-2, -1)) * factor
    if is_causal:
        rows, columns = scores.shape[-2:]
        allowed = torch.ones((rows, columns), dtype=torch.bool).tril()
        scores = torch.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        scores = torch.where(attn_mask, scores, -math.inf) if masked else scores + attn_mask.to(wide)
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:  # a query that attends to nothing gives zeros
        weights = torch.where((scores == -math.inf).all(-1, keepdim=True), 0, weights)
    by_value = weights.transpose(-2, -1) @ g
    by_weights = g @ v.transpose(-2, -1)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdim=True)) * factor
    by_query, by_key = by_scores @ k, by_scores.transpose(-2, -1) @ q
    if repeats != 1:
        by_key, by_value = (each.unflatten(-3, (-1, repeats)).sum(-3) for each in (by_key, by_value))
    return by_query.to(query.dtype), by_key.to(key.dtype), by_value.to(value.dtype)


@decomposition("aten.avg_pool2d_backward.default")
def average_pool_2d_backward(grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return _average_pool_backward(2, grad, x, *rest)


@decomposition("aten.avg_pool3d_backward.default")
def average_pool_3d_backward(grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return _average_pool_backward(3, grad, x, *rest)


def _average_pool_backward(
    dims: int, grad: torch.Tensor, x: torch.Tensor, window: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> torch.Tensor:  # fmt: skip
    """Compute the gradient of averages: each is added to the elements of its window."""
    import torch

    window, padding = _each(window, dims), _each(padding, dims)
    stride = _each(stride, dims) if stride else window
    sizes, counts = x.shape[-dims:], grad.shape[-dims:]
    shares = grad / (divisor_override or 1)
    if divisor_override is None:
        for axis in range(dims):
            start = torch.arange(counts[axis]) * stride[axis] - padding[axis]
            size = sizes[axis]
            if count_include_pad:
                elements = (start + window[axis]).clamp(max=size + padding[axis]) - start
            else:
                elements = (start + window[axis]).clamp(max=size) - start.clamp(min=0)
            shares = shares / elements.to(grad.dtype).reshape(-1, *[1] * (dims - 1 - axis))
    rows = shares.reshape(-1, 1, *counts)
    ones = torch.ones((1, 1, *window), dtype=grad.dtype)
    none = [0] * dims
    sums = torch.ops.aten.convolution(rows, ones, None, stride, none, [1] * dims, True, none, 1)
    missing = [
        max(size + before - there, 0) for size, before, there in zip(sizes, padding, sums.shape[-dims:], strict=True)
    ]
    sums = torch.nn.functional.pad(sums, [each for count in reversed(missing) for each in (0, count)])
    for axis, (size, before) in enumerate(zip(sizes, padding, strict=True)):
        sums = sums.narrow(2 + axis, before, size)
    return sums.reshape(x.shape)


def _each(numbers: Sequence[int], dims: int) -> list[int]:
    """Return one number per dim, repeating a single number."""
    return list(numbers) * dims if len(numbers) == 1 else list(numbers)


@decomposition("aten.adaptive_max_pool2d_backward.default")
def adaptive_max_pool_2d_backward(grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return _max_pool_backward(2, grad, x, indices)


@decomposition("aten.adaptive_max_pool3d_backward.default")
def adaptive_max_pool_3d_backward(grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return _max_pool_backward(3, grad, x, indices)


@decomposition("aten.max_pool2d_with_indices_backward.default")
def max_pool_2d_backward(grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    *windows, indices = rest
    return _window_max_backward(2, grad, x, indices, *windows)


@decomposition("aten.max_pool3d_with_indices_backward.default")
def max_pool_3d_backward(grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    *windows, indices = rest
    return _window_max_backward(3, grad, x, indices, *windows)


def _window_max_backward(
    dims: int, grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor, window: Sequence[int],
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
) -> torch.Tensor:  # fmt: skip
    """Compute the gradient of max pooling.

    Where windows lie side by side, each element compares its position with that of the maximum of its window: no memory
    is filled with zeros. Dims are ordered as those of images with channels last, as convolutions compute them.
    """
    import torch

    window, padding, dilation = (_each(each, dims) for each in (window, padding, dilation))
    steps = _each(stride, dims) if stride else window
    sizes, counts = x.shape[-dims:], grad.shape[-dims:]
    rest = [size - count * step for size, count, step in zip(sizes, counts, window, strict=True)]
    is_static = all(isinstance(each, int) for each in (*sizes, *rest))
    if not is_static or steps != window or any(padding) or any(each != 1 for each in dilation) or min(rest) < 0:
        return _max_pool_backward(dims, grad, x, indices)
    kind = _position_type(sizes)
    positions = torch.zeros((), dtype=torch.int64)
    for count, step, size in zip(counts, window, sizes, strict=True):
        positions = positions[..., None, None] * size + torch.arange(count * step).reshape(count, step)
    of_window = [each for count in counts for each in (count, 1)]
    last = [each.movedim(-dims - 1, -1) for each in (indices.to(kind), grad)]
    position, value = (each.reshape([*each.shape[: -dims - 1], *of_window, each.shape[-1]]) for each in last)
    elements = torch.where(position == positions.to(kind)[..., None], value, 0)
    outer = elements.shape[: -2 * dims - 1]
    covered = [count * step for count, step in zip(counts, window, strict=True)]
    result = elements.reshape([*outer, *covered, elements.shape[-1]]).movedim(-1, -dims - 1)
    if any(rest):
        result = torch.nn.functional.pad(result, [each for count in reversed(rest) for each in (0, count)])
    return result


def _position_type(sizes: Sequence[int]) -> torch.dtype:
    """Return the smallest type of positions in a channel, which the backward graph may keep."""
    import torch

    last = math.prod(sizes) - 1
    return next(kind for kind in (torch.uint8, torch.int16, torch.int32, torch.int64) if last <= torch.iinfo(kind).max)


def _max_pool_backward(dims: int, grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of max pooling: each is added at the position of the maximum in its channel."""
    import torch

    outer = x.shape[: x.dim() - dims]
    zeros = torch.zeros((*outer, math.prod(x.shape[x.dim() - dims :])), dtype=grad.dtype)
    flat = (*outer, math.prod(grad.shape[x.dim() - dims :]))
    sums = zeros.scatter_add(-1, indices.reshape(flat), grad.reshape(flat))
    return sums.reshape(x.shape)


@decomposition("aten._adaptive_avg_pool2d_backward.default")
def adaptive_average_pool_2d_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _adaptive_average_pool_backward(2, grad, x)


@decomposition("aten._adaptive_avg_pool3d_backward.default")
def adaptive_average_pool_3d_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _adaptive_average_pool_backward(3, grad, x)


def _adaptive_average_pool_backward(dims: int, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of adaptive average pooling, axis by axis."""
    import torch

    for axis in range(x.dim() - dims, x.dim()):
        size, count = x.shape[axis], grad.shape[axis]
        if size % count == 0:
            grad = grad.repeat_interleave(size // count, axis) / (size // count)
            continue
        windows, places = torch.arange(count)[:, None], torch.arange(size)
        starts = torch.div(windows * size, count, rounding_mode="floor")
        ends = torch.div((windows + 1) * size + count - 1, count, rounding_mode="floor")
        shares = ((places >= starts) & (places < ends)) / (ends - starts)
        grad = torch.tensordot(grad.movedim(axis, -1), shares.to(grad.dtype), 1).movedim(-1, axis)
    return grad


@decomposition(
    "aten.replication_pad1d_backward.default", "aten.replication_pad2d_backward.default",
    "aten.replication_pad3d_backward.default",
)  # fmt: skip
def replication_pad_backward(grad: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Compute the gradient of replication padding: sum the repeated edges, axis by axis."""
    import torch

    for number, before in enumerate(padding[::2]):
        axis = x.dim() - 1 - number
        sources = (torch.arange(grad.shape[axis]) - before).clamp(0, x.shape[axis] - 1)
        shape = [*grad.shape[:axis], x.shape[axis], *grad.shape[axis + 1 :]]
        grad = torch.zeros(shape, dtype=grad.dtype).index_add(axis, sources, grad)
    return grad


@decomposition("aten.masked_scatter_backward.default")
def masked_scatter_backward(grad: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Compute the gradient of the source of `masked_scatter`: the elements under the mask, then zeros."""
    import torch

    count = math.prod(sizes)
    flags = mask.expand(grad.shape).reshape(-1)
    places = torch.where(flags, flags.cumsum(0) - 1, count)
    room = torch.zeros(count + 1, dtype=grad.dtype)
    return room.scatter(0, places, grad.reshape(-1))[:count].reshape(sizes)


@decomposition("aten._trilinear.default")
def trilinear(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, new_x: Sequence[int], new_y: Sequence[int],
    new_z: Sequence[int], summed: Sequence[int], unrolled: int = 1,
) -> torch.Tensor:  # fmt: skip
    """Compute products of three tensors with inserted dims, summed over some dims: used by bilinear layers."""
    import torch

    letters = string.ascii_lowercase[: x.dim() + len(new_x)]
    terms = [[each for axis, each in enumerate(letters) if axis not in new] for new in (new_x, new_y, new_z, summed)]
    *operands, result = map("".join, terms)
    return torch.einsum(f"{','.join(operands)}->{result}", x, y, z)


@decomposition("aten._cdist_backward.default")
def distances_backward(
    grad: torch.Tensor, left: torch.Tensor, right: torch.Tensor, p: float, distances: torch.Tensor
) -> torch.Tensor:
    """Compute the gradient of distances between rows of two matrices with respect to the first matrix."""
    steps = left.unsqueeze(-2) - right.unsqueeze(-3)
    return _slopes(grad.unsqueeze(-1), steps, distances.unsqueeze(-1), p).sum(-2)


@decomposition("aten._pdist_backward.default")
def pairs_backward(grad: torch.Tensor, x: torch.Tensor, p: float, distances: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of distances between all rows of a matrix."""
    import torch

    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1)
    slopes = _slopes(grad.unsqueeze(-1), x[first] - x[second], distances.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, first, slopes).index_add(0, second, -slopes)


def _slopes(grad: torch.Tensor, steps: torch.Tensor, distances: torch.Tensor, p: float) -> torch.Tensor:
    """Return the gradients of norms with respect to their elements; 0 for a norm of 0."""
    import torch

    if p == 0:
        return torch.zeros_like(steps)
    if p == 1:
        return grad * steps.sign()
    if p == math.inf:
        return grad * steps.sign() * (steps.abs() == distances)
    slopes = steps if p == 2 else steps.sign() * steps.abs().pow(p - 1)
    return torch.where(distances == 0, 0, grad * slopes / distances.pow(p - 1))
