"""How operators are divided among ranks: the rules that their classes declare as `sharding`.

A rule takes the types of the results, then operands and attributes as `infer` does. Operators without one are computed
by each rank from whole operands; elementwise ones and those along a last axis have rules by their traits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.sharding import Labels, ShardingRule, positional_labels, view_labels, without
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.infer import channel_axis

Results = Sequence[TensorType]
OF_FIRST = (frozenset({0}),)
"""Operators that are linear in their first operand."""


def matmul(
    results: Results, lhs: TensorType, rhs: TensorType, *, transpose_lhs: bool, transpose_rhs: bool, **_: object
) -> ShardingRule:
    """Divide rows, columns, batches, or what is summed over."""
    left: Labels = ("k",) if lhs.rank == 1 else ("k", "m") if transpose_lhs else ("m", "k")
    right: Labels = ("k",) if rhs.rank == 1 else ("n", "k") if transpose_rhs else ("k", "n")
    out = tuple(label for label in (*left, *right) if label != "k")
    batch = results[0].rank - len(out)
    labels = [
        (*positional_labels(each.shape[: each.rank - len(own)], batch), *own)
        for each, own in ((lhs, left), (rhs, right))
    ]
    leading = positional_labels(results[0].shape[:batch], batch)
    return ShardingRule(tuple(labels), ((*leading, *out),), frozenset({"k"}))


def move(results: Results, x: TensorType, **_: object) -> ShardingRule:
    """Divide a reshaped tensor along the outermost of dims that are merged or divided."""
    before, after = view_labels(x.shape, results[0].shape)
    return ShardingRule((before,), (after,), linear=OF_FIRST)


def reshape(results: Results, x: TensorType, **_: object) -> ShardingRule:
    """Divide as `move` does; the attribute is the shape of the result."""
    before, after = view_labels(x.shape, results[0].shape)
    return ShardingRule((before,), (after,), linear=OF_FIRST, shape="shape")


def full(results: Results, **_: object) -> ShardingRule:
    """Divide any axis."""
    return ShardingRule((), (tuple(f"d{i}" for i in range(results[0].rank)),), shape="shape")


def permute(results: Results, x: TensorType, *, axes: Sequence[int]) -> ShardingRule:
    """Divide any axis."""
    labels = tuple(f"d{i}" for i in range(x.rank))
    return ShardingRule((labels,), (tuple(labels[axis % x.rank] for axis in axes),), linear=OF_FIRST)


def expand(results: Results, x: TensorType, **_: object) -> ShardingRule:
    """Divide axes that are not repeated."""
    labels = positional_labels(x.shape, results[0].rank)
    result = tuple(f"d{i}" if f"d{i}" in labels else "" for i in range(results[0].rank))
    return ShardingRule((labels,), (result,), linear=OF_FIRST, shape="shape")


def gather(results: Results, x: TensorType, indices: TensorType, *, axis: int) -> ShardingRule:
    """Divide the other axes of a table, the positions, or the rows of the table."""
    at = axis % x.rank
    table = without(tuple(f"d{i}" for i in range(x.rank)), (at,))
    places = tuple(f"i{i}" for i in range(indices.rank))
    result = (*table[:at], *places, *table[at + 1 :])
    return ShardingRule((table, places), (result,), linear=OF_FIRST, looked_up=(0, at))


def gather_elements(results: Results, x: TensorType, indices: TensorType, *, axis: int) -> ShardingRule:
    """Divide axes of equal sizes, but that of the positions."""
    labels = tuple(
        f"d{i}" if a == b and i != axis % x.rank else ""
        for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True))
    )
    return ShardingRule((labels, labels), (labels,), linear=OF_FIRST)


def scatter_nd(
    results: Results, x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str
) -> ShardingRule:
    """Divide the axes of the slices that are written; partial sums of both operands make partial sums."""
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    slices = tuple(f"d{i}" for i in range(depth, x.rank))
    whole = ("",) * depth + slices
    places = ("",) * indices.rank
    linear = (frozenset({0, 2}),) if reduction in ("none", "add") else ()
    return ShardingRule((whole, places, places[1:] + slices), (whole,), linear=linear)


def concat(results: Results, xs: Sequence[TensorType], *, axis: int) -> ShardingRule:
    """Divide the other axes."""
    labels = without(tuple(f"d{i}" for i in range(xs[0].rank)), (axis % xs[0].rank,))
    return ShardingRule((labels,) * len(xs), (labels,), linear=(frozenset(range(len(xs))),))


def split(results: Results, x: TensorType, *, axis: int, **_: object) -> ShardingRule:
    """Divide the other axes."""
    labels = without(tuple(f"d{i}" for i in range(x.rank)), (axis % x.rank,))
    return ShardingRule((labels,), (labels,) * len(results), linear=OF_FIRST)


def strided_slice(results: Results, x: TensorType, *, axes: Sequence[int], **_: object) -> ShardingRule:
    """Divide the axes that are not sliced."""
    labels = without(tuple(f"d{i}" for i in range(x.rank)), (axis % x.rank for axis in axes))
    return ShardingRule((labels,), (labels,), linear=OF_FIRST)


def slice_dims(
    results: Results, x: TensorType, *, begin: Sequence[Dim], shape: Sequence[Dim], strides: Sequence[int]
) -> ShardingRule:
    """Divide the axes of which all elements are taken."""
    pieces = zip(x.shape, begin, shape, strides, strict=True)
    labels = tuple(f"d{i}" if piece == (piece[0], 0, piece[0], 1) else "" for i, piece in enumerate(pieces))
    return ShardingRule((labels,), (labels,), linear=OF_FIRST, shape="shape")


def reduction(is_sum: bool, is_linear: bool) -> Callable[..., ShardingRule]:
    """Return the rule of a reduction; of sums, the reduced axes may be divided as well."""

    def rule(results: Results, x: TensorType, *, axes: Sequence[int] | None, keepdims: bool) -> ShardingRule:
        gone = set(range(x.rank)) if axes is None else {axis % x.rank for axis in axes}
        labels = tuple(f"d{i}" if is_sum or i not in gone else "" for i in range(x.rank))
        kept = without(tuple(f"d{i}" for i in range(x.rank)), gone)
        result = kept if keepdims else tuple(label for i, label in enumerate(kept) if i not in gone)
        reduced = frozenset(f"d{i}" for i in gone if is_sum)
        return ShardingRule((labels,), (result,), reduced, linear=OF_FIRST if is_linear else ())

    return rule


def other_axes(results: Results, x: TensorType, *, axis: int, keepdims: bool = True, **_: object) -> ShardingRule:
    """Divide all axes but that along which an operator computes, which the result may not have."""
    labels = without(tuple(f"d{i}" for i in range(x.rank)), (axis % x.rank,))
    result = labels if keepdims else tuple(label for i, label in enumerate(labels) if i != axis % x.rank)
    return ShardingRule((labels,), (result,) * len(results))


def reverse(results: Results, x: TensorType, *, axes: Sequence[int]) -> ShardingRule:
    """Divide the axes that are not reversed."""
    labels = without(tuple(f"d{i}" for i in range(x.rank)), (axis % x.rank for axis in axes))
    return ShardingRule((labels,), (labels,), linear=OF_FIRST)


def pad(results: Results, x: TensorType, *, pads: Sequence[int], **_: object) -> ShardingRule:
    """Divide the axes that get no elements, and lose none."""
    begin, end = pads[: x.rank], pads[x.rank :]
    labels = tuple(f"d{i}" if not begin[i] and not end[i] else "" for i in range(x.rank))
    return ShardingRule((labels,), (labels,))


def stack(results: Results, xs: Sequence[TensorType], *, axis: int) -> ShardingRule:
    """Divide the axes of the operands."""
    labels = tuple(f"d{i}" for i in range(xs[0].rank))
    at = axis % (xs[0].rank + 1)
    result = (*labels[:at], "", *labels[at:])
    return ShardingRule((labels,) * len(xs), (result,), linear=(frozenset(range(len(xs))),))


def conv(
    results: Results, x: TensorType, weight: TensorType, bias: TensorType | None, *, data_layout: str, **_: object
) -> ShardingRule:
    """Divide the batch."""
    operands = [("batch", *[""] * (x.rank - 1)), ("",) * weight.rank]
    if bias is not None:
        operands.append(("",) * bias.rank)
    return ShardingRule(tuple(operands), (("batch", *[""] * (x.rank - 1)),))


def pool(results: Results, x: TensorType, *, data_layout: str, **_: object) -> ShardingRule:
    """Divide the batch, and the channels."""
    channels = channel_axis(data_layout, x.rank)
    labels = tuple("batch" if i == 0 else "channels" if i == channels else "" for i in range(x.rank))
    return ShardingRule((labels,), (labels,) * len(results))


def last_axis(results: Results, x: TensorType, *parameters: TensorType | None, axis: int, **_: object) -> ShardingRule:
    """Divide the axes before that along which an operator computes."""
    labels = tuple(f"d{i}" if i < axis % x.rank else "" for i in range(x.rank))
    others = tuple(("",) * each.rank for each in parameters if each is not None)
    return ShardingRule((labels, *others), (labels,))


def attention(
    results: Results,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    mask: TensorType | None,
    *others: TensorType | None,
    **_: object,
) -> ShardingRule:
    """Divide heads: those of the query, and those of keys and values that they share."""
    heads, batch = "h", "b"
    masks = _mask_labels(mask, batch, heads)
    rest = tuple((batch, heads, "", "") if each.rank == 4 else (heads,) for each in others if each is not None)
    rows = (batch, heads, "", "")
    return ShardingRule((rows, rows, rows, *masks, *rest), (rows,), shared=frozenset({heads}))


def paged_attention(
    results: Results,
    query: TensorType,
    key_cache: TensorType,
    value_cache: TensorType,
    table: TensorType,
    lengths: TensorType,
    *others: TensorType | None,
    **_: object,
) -> ShardingRule:
    """Divide heads; a rank has all pages, with the rows of its own heads."""
    batch, heads = "b", "h"
    mask, key_scale, value_scale, sinks = others
    rows, pages = (batch, heads, "", ""), ("", "", heads, "")
    masks = _mask_labels(mask, batch, heads)
    scales = tuple(pages for each in (key_scale, value_scale) if each is not None)
    last = () if sinks is None else ((heads,),)
    operands = (rows, pages, pages, (batch, ""), (batch,), *masks, *scales, *last)
    return ShardingRule(operands, (rows,), shared=frozenset({heads}))


def _mask_labels(mask: TensorType | None, batch: str, heads: str) -> tuple[Labels, ...]:
    """Return the labels of the mask of attention, if there is one."""
    if mask is None:
        return ()
    shape = (1,) * (4 - mask.rank) + mask.shape
    own = tuple(label if dim != 1 else "" for label, dim in zip((batch, heads, "", ""), shape, strict=False))
    return (own[4 - mask.rank :],)


def cache_write(
    results: Results, cache: TensorType, new: TensorType, positions: TensorType, **_: object
) -> ShardingRule:
    """Divide heads; each rank keeps the rows of its own."""
    rows = ("", "h", "", "d")
    return ShardingRule((rows, rows, ("", "")), (rows,), shape="shape", state=0)


def rotary_embedding(results: Results, x: TensorType, cos: TensorType, sin: TensorType, **_: object) -> ShardingRule:
    """Divide heads and batches."""
    angles = without(positional_labels(cos.shape, 4), (cos.rank - 1,))
    return ShardingRule((("d0", "d1", "d2", ""), angles, angles), (("d0", "d1", "d2", ""),))


def dequantize(
    results: Results,
    x: TensorType,
    scale: TensorType,
    zero_point: TensorType | None,
    *,
    axis: int,
    block: int,
    **_: object,
) -> ShardingRule:
    """Divide any axis; scales of blocks are divided with the blocks."""
    labels = tuple(f"d{i}" for i in range(x.rank))
    scales = labels if block else (labels[axis % x.rank],) if scale.rank else ()
    others = (scales,) if zero_point is None else (scales, scales)
    return ShardingRule((labels, *others), (labels,))


def unpack(results: Results, x: TensorType, **_: object) -> ShardingRule:
    """Divide any axis; bytes are divided with what they hold."""
    labels = tuple(f"d{i}" for i in range(x.rank))
    return ShardingRule((labels,), (labels,))
