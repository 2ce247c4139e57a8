"""Operators on shapes with arguments that only calls know: Reshape, Expand, Slice, Split, Pad, Squeeze, Unsqueeze."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.conditions import collect_conditions, require_at_most, require_between, require_equal
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.frontends.builder import sizes_if, sum_fits
from mirlo.frontends.onnx.declared import by_axis
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import dynamic_converter
from mirlo.frontends.onnx.values import as_dim
from mirlo.frontends.tensor import Tensor, concat, maximum, where

WRONG_DIM = 0
"""Stands for a missing dim that should be copied: the element counts then match only for empty tensors."""
FAR = 2**63 - 1
"""The end of a slice that takes all."""


@dynamic_converter("Reshape")
def reshape(node: Node) -> Tensor:
    """Reshape to a run-time shape: 0 copies a dim, -1 is the rest."""
    x, wanted, elements = node.type(0), node.vector(1), node.value(1).partial_sizes
    (rank,) = wanted.type.shape
    if not isinstance(rank, int):
        raise NodeError(f"input 'shape' is a list of {rank} numbers: the rank of the result must be known")
    dims = wanted
    if not node.attr.bool("allowzero", 0):
        own = node.sizes([*x.shape, *[WRONG_DIM] * rank][:rank])
        dims = where(wanted.equals(0), own, wanted)
    is_inferred = dims.equals(-1)
    ones = node.constant(1, "i64")
    known = where(is_inferred, ones, dims).prod()
    total = node.sizes(x.shape).prod() if x.rank else ones
    rest = total // maximum(known, ones)
    dims = where(is_inferred, rest, dims)
    known_dims = elements or [None] * rank
    if any(dim is not None for dim in known_dims):
        # A size that is 0 in a call is that size, also where 0 would copy a dim.
        known_sizes = node.sizes([0 if dim is None else dim for dim in known_dims])
        is_known = node.constant(np.array([dim is not None for dim in known_dims]))
        dims = where(is_known, known_sizes, dims)
    fits = dims.prod().equals(total)
    what = f"input 'shape' does not fit the input {x}, or is not a shape"
    return node[0].reshape(node.bind_unknown(sizes_if(fits, dims), what, known_dims))


@dynamic_converter("Expand")
def expand(node: Node) -> Tensor:
    """Broadcast with a run-time shape, both ways."""
    x, wanted = node.type(0), node.vector(1)
    (count,) = wanted.type.shape
    if not isinstance(count, int):
        raise NodeError(f"input 'shape' is a list of {count} numbers: the rank of the result must be known")
    rank = max(x.rank, count)
    own = [*[1] * (rank - x.rank), *x.shape]
    tail = own[rank - count :]
    what = f"input 'shape' does not broadcast with the input {x}"
    bound = node.bind(wanted, what)
    shape = (*own[: rank - count], *map(node.builder.broadcast_dim, tail, bound))
    with _required(node, what) as text:
        for new, dim in zip(bound, shape[rank - count :], strict=True):
            require_between(new, (1, dim), text)
    return node.emit("expand", node[0], shape=shape)


@contextmanager
def _required(node: Node, what: str) -> Iterator[str]:
    """Check in the call what is required of sizes inside, with the yielded text."""
    text = f"node '{node.outputs[0]}' ({node.operator}): {what}"
    with collect_conditions() as conditions:
        yield text
    if conditions:
        lows, highs = zip(*((each.low, each.high) for each in conditions), strict=True)
        RequireDims.build(dims=lows, bounds=highs, what=text, result_types=[])


@dynamic_converter("Slice")
def slice_(node: Node) -> Tensor:
    """Convert Slice with run-time bounds: start and length are computed at run time."""
    x = node.type(0)
    if not x.rank or node.type(1).rank != 1:
        raise NodeError(f"it takes a tensor with dims and lists of numbers, got {x} and {node.type(1)}")
    ranges = _known_ranges(node, x)
    changed = _sliced_axes(node, x.rank)
    if set(changed) <= set(ranges):
        begins = [ranges[axis][0] if axis in changed else 0 for axis in range(x.rank)]
        shape = [ranges[axis][1] if axis in changed else dim for axis, dim in enumerate(x.shape)]
        return node[0].part(begins, shape)
    starts, ends = node.vector(1), node.vector(2)
    axes = node.vector(3) if node.has(3) else None
    steps = node.vector(4) if node.has(4) else None
    if axes is None and not all(each.type.is_static for each in (starts, ends)):
        count = starts.type.shape[0]
        starts = _per_axis(node, starts, count, x.rank, 0)
        ends = _per_axis(node, ends, count, x.rank, FAR)
        steps = None if steps is None else _per_axis(node, steps, count, x.rank, 1)
    elif axes is not None and not all(each.type.is_static for each in (starts, ends, axes, steps or axes)):
        counts = [each.type.shape[0] for each in (starts, ends, axes, steps or axes) if each.type.is_static]
        if not counts:
            raise NodeError(
                f"input 'axes' is a list of {axes.type.shape[0]} numbers: how many there are must be known; declare "
                "it, or fix it with shapes="
            )
        # The lists have one length; calls check that of those whose length is unknown.
        starts, ends, axes = (each.reshape((counts[0],)) for each in (starts, ends, axes))
        steps = None if steps is None else steps.reshape((counts[0],))
    bounds = node.emit("slice_bounds", node.sizes(x.shape), starts, ends, axes, steps)
    lengths = bounds.gather(node.constant(1, "i64")).reshape((x.rank,))
    shape = [ranges[axis][1] if axis in ranges else dim for axis, dim in enumerate(x.shape)]
    unknown = [axis for axis in changed if axis not in ranges]
    chosen = lengths.gather(node.constant(unknown, "i64"))
    bound = node.bind(chosen, "its axes or steps cannot be", [x.shape[axis] for axis in unknown])
    for axis, dim in zip(unknown, bound, strict=True):
        shape[axis] = dim
    return node.emit("slice_at", node[0], bounds, shape=tuple(shape))


def _per_axis(node: Node, values: Tensor, count: Dim, rank: int, rest: int) -> Tensor:
    """Return a number per axis from those of the first axes, of which only the call knows how many there are."""
    (own,) = values.type.shape
    what = f"starts, ends and steps must be of one length, at most {rank}, got {count} and {own} elements"
    with _required(node, what) as text:
        require_at_most(own, rank, text)
        require_equal(own, count, text)
    longer = concat([values, node.constant([rest] * rank, "i64")], axis=0)
    return longer.slice(0, 0, rank)


def _known_ranges(node: Node, x: TensorType) -> dict[int, tuple[Dim, Dim]]:
    """Return begin and length along the axes that a Slice cuts, where both are dims."""
    starts, ends = (_elements(node.value(i)) for i in (1, 2))
    axes = _elements(node.value(3)) if node.has(3) else list(range(len(starts)))
    steps = _elements(node.value(4)) if node.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or not all(isinstance(axis, int) for axis in axes):
        return {}
    ranges: dict[int, tuple[Dim, Dim]] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        assert isinstance(axis, int)
        if step != 1 or start is None or end is None or not -x.rank <= axis < x.rank:
            continue
        size = x.shape[axis % x.rank]
        begin, stop = (_position(bound, size) for bound in (start, end))
        if begin is not None and stop is not None:
            ranges[axis % x.rank] = begin, D.maximum(stop - begin, 0)
    return ranges


def _position(bound: Dim, size: Dim) -> Dim | None:
    """Return the position in an axis of this size for a bound of a slice; None if its sign is not known."""
    if bound == 0:
        return 0
    if D.is_certain(lambda: bound >= 0):
        return D.minimum(bound, size)
    return D.maximum(size + bound, 0) if D.is_certain(lambda: bound < 0) else None


def _elements(value: Tensor) -> list[Dim | None]:
    """Return the elements of a list of integers; None for elements that are not known."""
    if value.known is not None:
        return [as_dim(element) for element in value.known.reshape(-1)]
    return list(value.partial or ())


@dynamic_converter("Split")
def split(node: Node) -> tuple[Tensor, ...]:
    """Convert Split with run-time sizes."""
    x, sizes = node.type(0), node.vector(1)
    axis = node.attr.int("axis", 0) % x.rank
    size, (count,) = x.shape[axis], sizes.type.shape
    what = f"input 'split' does not add up to {size}"
    parts = node.bind(sizes, what, [size] * count if isinstance(count, int) else None)
    if len(parts) != len(node.outputs):
        raise NodeError(f"input 'split' has {len(parts)} numbers for {len(node.outputs)} outputs")
    with _required(node, what) as text:
        require_equal(sum(parts), size, text)
    slices = []
    at: Dim = 0
    for part in parts:
        slices.append(node[0].slice(axis, at, part))
        at = at + part
    return tuple(slices)


def _sliced_axes(node: Node, rank: int) -> list[int]:
    """Return the axes whose dims may change."""
    if node.has(3):
        known = node.value(3).known
        return list(range(rank)) if known is None else sorted({int(axis) % rank for axis in known.reshape(-1)})
    (count,) = node.type(1).shape
    if isinstance(count, int) and count > rank:
        raise NodeError(f"input 'starts' has {count} numbers for a tensor of rank {rank}")
    return list(range(count if isinstance(count, int) else rank))


@dynamic_converter("Pad")
def pad(node: Node) -> Tensor:
    """Convert Pad with run-time amounts and axes."""
    x, mode = node.type(0), node.attr.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    pads = node.vector(1)
    (amounts,) = pads.type.shape
    if not isinstance(amounts, int) or amounts % 2:
        raise NodeError(f"input 'pads' must have two numbers for each axis, got {node.type(1)}")
    halves = pads.reshape((2, amounts // 2))
    before, after = (halves.gather(node.constant(i, "i64")).reshape((amounts // 2,)) for i in range(2))
    if node.has(3):
        axes = node.vector(3)
        before, after = (by_axis(node, each, axes, x.rank) for each in (before, after))
    elif amounts // 2 != x.rank:
        raise NodeError(f"input 'pads' must have {2 * x.rank} numbers for {x}, got {amounts}")
    shape = _padded(node, x)
    if shape is None:
        own = node.sizes(x.shape)
        sizes = own + (before + after)
        sizes = sizes_if(sum_fits(own, before, after), sizes)
        shape = node.bind(sizes, "input 'pads' takes away more than there is")
    value = None
    if node.has(2):
        value = node.single(2)
        if value.type.dtype is not x.dtype:
            value = value.cast(x.dtype)
    return node.emit("pad_at", node[0], before, value, shape=shape, mode=mode)


def _padded(node: Node, x: TensorType) -> tuple[Dim, ...] | None:
    """Return the dims after padding if amounts are dims and axes are static; None if only the call knows."""
    amounts = node.value(1).known
    if amounts is None or (node.has(3) and node.value(3).array is None):
        return None
    axes = node.ints(3) if node.has(3) else list(range(x.rank))
    shape = list(x.shape)
    for axis, begin, end in zip(axes, *np.split(amounts.reshape(-1), 2), strict=True):
        shape[axis] = as_dim(begin) + as_dim(end) + shape[axis]
    return tuple(shape) if all(D.is_certain(lambda dim=dim: dim >= 0) for dim in shape) else None  # type: ignore[misc]


@dynamic_converter("Squeeze")
def squeeze(node: Node) -> Tensor:
    x, count = node.type(0), _count(node)
    left, dims = x.rank - count, node.sizes(node.type(0).shape)
    if left < 0:
        raise NodeError(f"input 'axes' is a list of {count} numbers, but {x} has {x.rank} axes")
    kept, position, once = _kept_axes(node, x.rank)
    here = position.equals(node.constant(np.arange(1, left + 1)[:, None], "i64"))
    shape = where(here, dims, 0).sum(1)
    ones = (kept | dims.equals(1)).all()
    return _reshaped(node, ones & once, shape, f"must name {count} dims of {x} that are 1")


@dynamic_converter("Unsqueeze")
def unsqueeze(node: Node) -> Tensor:
    x, count = node.type(0), _count(node)
    rank = x.rank + count
    kept, position, once = _kept_axes(node, rank)
    column = position.reshape((rank, 1))
    here = column.equals(node.constant(np.arange(1, x.rank + 1), "i64"))
    dims = where(here, node.sizes(x.shape), 0) if x.rank else None
    old = dims.sum(1) if dims is not None else node.constant(np.zeros(rank), "i64")
    shape = where(kept, old, 1)
    return _reshaped(node, once, shape, f"must name {count} axes of a tensor of rank {rank}")


def _count(node: Node) -> int:
    (count,) = node.vector(1).type.shape
    if not isinstance(count, int):
        raise NodeError(f"input 'axes' is a list of {count} numbers: how many there are must be known")
    return count


def _kept_axes(node: Node, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each axis, whether it is not listed and its rank among those (0 if listed).

    The third result is whether the list has no duplicates.
    """
    count = _count(node)
    listed = by_axis(node, node.constant(np.ones(count), "i64"), node.vector(1), rank)
    kept = listed.equals(0)
    before = node.constant(np.tril(np.ones((rank, rank))), "i64")
    counted = kept.cast("i64") * before
    position = where(kept, counted.sum(1), 0)
    named = (~kept).cast("i64").sum()
    return kept, position, named.equals(count)


def _reshaped(node: Node, fits: Tensor, shape: Tensor, what: str) -> Tensor:
    what = f"input 'axes' {what}"
    if shape.type.shape != (0,):
        return node[0].reshape(node.bind(sizes_if(fits, shape), what))
    node.bind(sizes_if(fits, node.constant(0, "i64")).reshape((1,)), what)
    return node[0].reshape(())
