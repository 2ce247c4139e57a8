"""Data-dependent sizes: run-time values become symbols, and computation with them stays compiled code.

`bind` gives each element of an i64 vector a symbol; later shapes use these symbols like those of inputs. An invalid
size is made negative where it is computed, so that the one check of `relax.bind_dims` reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.dynamic import BindDims, RequireDims
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.values import as_dim
from mirlo.frontends.sizes import divisible, divisor_of, quotient
from mirlo.frontends.tensor import Tensor, concat, maximum, where

WRONG = -1
"""A size that signals an error."""
MAX_SIZE = float(1 << 62)
"""Sizes from here on are invalid: sums of a few of them would overflow i64."""


def bind_unknown(node: Node, values: Tensor, what: str, known: Sequence[Dim | None]) -> tuple[Dim, ...]:
    """Return the elements of an i64 vector: those that are known, and symbols that the others are bound to."""
    unknown = [i for i, dim in enumerate(known) if dim is None]
    chosen = values if len(unknown) == len(known) else values.gather(i64_constant(node, unknown))
    bound = iter(bind(node, chosen, what))
    return tuple(next(bound) if dim is None else dim for dim in known)


def known_sizes(elements: Sequence[Dim | None]) -> list[Dim | None]:
    """Return the elements of a list that are sizes for sure; None for the others."""
    return [None if dim is None or dim == 0 or not D.is_nonnegative(dim) else dim for dim in elements]


def bind(node: Node, values: Tensor, what: str, bounds: Sequence[Dim] | None = None) -> tuple[Dim, ...]:
    """Bind the elements of an i64 vector to symbols; `what` describes them in errors."""
    tensor_type = values.type
    if tensor_type.rank != 1:
        raise NodeError(f"a list of numbers is expected, got {tensor_type}")
    (count,) = tensor_type.shape
    if not isinstance(count, int):
        raise NodeError(f"{what} is a list of {count} numbers: how many there are must be known")
    if count == 0:
        return ()
    names, made = zip(*(node.builder.symbol_of_data(node.outputs[0]) for _ in range(count)), strict=True)
    text = f"node '{node.outputs[0]}' ({node.operator}): {what}"
    divisors = [divisor_of(dim) for dim in made]
    if any(divisor is not None for divisor in divisors):
        names, values = _bound_quotients(node, values, names, made, divisors)
        numbers = " x ".join("1" if divisor is None else str(divisor) for divisor in divisors)
        text += f", or its size is no multiple of {numbers}, which other nodes need"
    solved = [
        divisor is None and dim != D.symbol(name) for name, dim, divisor in zip(names, made, divisors, strict=True)
    ]
    if any(solved):
        expected = shape_vector(node, [dim if is_solved else 0 for dim, is_solved in zip(made, solved, strict=True)])
        free = node.constant(np.array([not is_solved for is_solved in solved]))
        values = where(values.equals(expected) | free, values, i64_constant(node, WRONG))
        needed = " x ".join(str(dim) if is_solved else "any" for dim, is_solved in zip(made, solved, strict=True))
        text += f", or its size is not {needed}, which other nodes need"
    limits = [
        bound if divisor is None or bound is D.UNKNOWN else bound // divisor
        for bound, divisor in zip(bounds or [D.UNKNOWN] * count, divisors, strict=True)
    ]
    BindDims.build(node.builder.full(values), symbols=names, bounds=limits, what=text, result_types=[])
    return made


def _bound_quotients(
    node: Node, values: Tensor, names: Sequence[str], made: Sequence[Dim], divisors: Sequence[int | None]
) -> tuple[tuple[str, ...], Tensor]:
    """Return what to bind instead of sizes that must be multiples: the symbols of their quotients."""
    numbers = i64_constant(node, [divisor or 1 for divisor in divisors])
    quotients = values // numbers
    whole = (quotients * numbers).equals(values)
    symbols = (
        name if divisor is None else next(iter(D.symbols_of(dim)))
        for name, dim, divisor in zip(names, made, divisors, strict=True)
    )
    return tuple(symbols), where(whole, quotients, i64_constant(node, WRONG))


def vector(node: Node, index: int) -> Tensor:
    """Return an input that is a list of integers as an i64 vector."""
    tensor_type = node.type(index)
    value = node[index] if tensor_type.rank == 1 else node[index].reshape((tensor_type.elements,))
    return value if tensor_type.dtype.name == "i64" else value.cast("i64")


def scalar(node: Node, index: int) -> Tensor:
    """Return an input of one element as rank 0."""
    tensor_type = node.type(index)
    if tensor_type.elements != 1:
        raise NodeError(f"input '{node.input_name(index)}' must have one element, got {tensor_type}")
    return node[index].reshape(()) if tensor_type.rank else node[index]


def shape_vector(node: Node, shape: Sequence[Dim]) -> Tensor:
    """Return dims as an i64 vector."""
    if all(isinstance(dim, int) for dim in shape):
        return node.constant(np.array(shape, np.int64))
    return node.emit("dims_tensor", dims=tuple(shape))


def as_scalar(node: Node, dim: Dim) -> Tensor:
    """Return a dim as an i64 of rank 0."""
    if isinstance(dim, int):
        return i64_constant(node, dim)
    return shape_vector(node, [dim]).reshape(())


def i64_constant(node: Node, values: int | Sequence[int] | np.ndarray) -> Tensor:
    """Return integers as an i64 constant."""
    return node.constant(np.asarray(values, np.int64))


def unless(node: Node, holds: Tensor, values: Tensor) -> Tensor:
    """Return the values if all of these conditions hold, else invalid sizes."""
    rank = holds.type.rank
    flag = holds.all() if rank else holds
    return where(flag, values, i64_constant(node, WRONG))


def as_sizes(node: Node, values: Tensor) -> Tensor:
    """Convert f64 to i64; values that are not sizes, such as NaN, become invalid sizes."""
    return where(_is_small(node, values), values.cast("i64"), i64_constant(node, WRONG))


def holds_sum(node: Node, *terms: Tensor) -> Tensor:
    """Return whether the sum of these integers fits i64."""
    wide = [term.cast("f64") for term in terms]
    return _is_small(node, reduce(partial(node.emit, "add"), wide))


def _is_small(node: Node, values: Tensor) -> Tensor:
    return abs(values) < MAX_SIZE


def by_axis(node: Node, values: Tensor, axes: Tensor, rank: int) -> Tensor:
    """Return a number per axis: `values` for the axes that `axes` lists, which may be negative; 0 for others."""
    (count,) = values.type.shape
    column = axes.reshape((count, 1))
    positions = i64_constant(node, np.arange(rank)[None])
    negative = positions - rank
    here = column.equals(positions) | column.equals(negative)
    spread = where(here, values.reshape((count, 1)), i64_constant(node, 0))
    return spread.sum(0)


def reshape_dims(
    node: Node, x: TensorType, wanted: Tensor, allow_zero: bool, elements: Sequence[Dim | None] | None = None
) -> tuple[Dim, ...]:
    """Return the result dims of a Reshape to a run-time shape: 0 copies a dim, -1 is the rest.

    `elements` are those of the shape that are known.
    """
    (rank,) = wanted.type.shape
    if not isinstance(rank, int):
        raise NodeError(f"input 'shape' is a list of {rank} numbers: the rank of the result must be known")
    dims = wanted
    if not allow_zero:
        own = shape_vector(node, [*x.shape, *[WRONG_DIM] * rank][:rank])
        dims = where(wanted.equals(0), own, wanted)
    is_inferred = dims.equals(-1)
    ones = i64_constant(node, 1)
    known = where(is_inferred, ones, dims).prod()
    total = shape_vector(node, x.shape).prod() if x.rank else ones
    rest = total // maximum(known, ones)
    dims = where(is_inferred, rest, dims)
    known_dims = known_sizes(elements or [None] * rank)
    if any(dim is not None for dim in known_dims):
        # A size that is 0 in a call is that size, also where 0 would copy a dim.
        given = shape_vector(node, [0 if dim is None else dim for dim in known_dims])
        is_known = node.constant(np.array([dim is not None for dim in known_dims]))
        dims = where(is_known, given, dims)
    fits = dims.prod().equals(total)
    what = f"input 'shape' does not fit the input {x}, or is not a shape"
    return bind_unknown(node, unless(node, fits, dims), what, known_dims)


def infer_remaining_dim(node: Node, x: TensorType, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return a shape whose -1 is replaced by what the other dims leave of x's elements."""
    total = shape_vector(node, x.shape).prod()
    known = shape_vector(node, [1, *(dim for dim in shape if dim != -1)]).prod()
    rest = total // maximum(known, i64_constant(node, 1))
    whole = (rest * known).equals(total)
    checked = unless(node, whole, rest).reshape((1,))
    (dim,) = bind(node, checked, f"the other dims of the shape do not divide the elements of {x}")
    return tuple(dim if size == -1 else size for size in shape)


WRONG_DIM = 0
"""Stands for a missing dim that should be copied: the element counts then match only for empty tensors."""


def expand_dims(node: Node, x: TensorType, wanted: Tensor) -> tuple[Dim, ...]:
    """Return the dims of x broadcast with a run-time shape, both ways."""
    (count,) = wanted.type.shape
    if not isinstance(count, int):
        raise NodeError(f"input 'shape' is a list of {count} numbers: the rank of the result must be known")
    rank = max(x.rank, count)
    own = [*[1] * (rank - x.rank), *x.shape]
    tail = own[rank - count :]
    given = shape_vector(node, tail)
    fits = wanted.equals(given) | wanted.equals(1) | given.equals(1)
    checked = unless(node, fits, wanted)
    bound = bind(node, checked, f"input 'shape' does not broadcast with the input {x}")
    return (
        *own[: rank - count],
        *map(node.builder.broadcast_dim, tail, bound),
    )


def dynamic_slice(node: Node) -> Tensor:
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
    starts, ends = vector(node, 1), vector(node, 2)
    axes = vector(node, 3) if node.has(3) else None
    steps = vector(node, 4) if node.has(4) else None
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
    bounds = node.emit("slice_bounds", shape_vector(node, x.shape), starts, ends, axes, steps)
    lengths = bounds.gather(i64_constant(node, 1)).reshape((x.rank,))
    shape = [ranges[axis][1] if axis in ranges else dim for axis, dim in enumerate(x.shape)]
    unknown = [axis for axis in changed if axis not in ranges]
    chosen = lengths.gather(i64_constant(node, unknown))
    bound = bind(node, chosen, "its axes or steps cannot be", [x.shape[axis] for axis in unknown])
    for axis, dim in zip(unknown, bound, strict=True):
        shape[axis] = dim
    return node.emit("slice_at", node[0], bounds, shape=tuple(shape))


FAR = 2**63 - 1
"""The end of a slice that takes all."""


def _per_axis(node: Node, values: Tensor, count: Dim, rank: int, rest: int) -> Tensor:
    """Return a number per axis from those of the first axes, of which only the call knows how many there are."""
    (own,) = values.type.shape
    what = (
        f"node '{node.outputs[0]}' ({node.operator}): starts, ends and steps must be of one length, at most {rank}, "
        f"got {count} and {own} elements"
    )
    RequireDims.build(dims=(own, own - count), bounds=(rank, 0), what=what, result_types=[])
    longer = concat([values, i64_constant(node, [rest] * rank)], axis=0)
    return longer.slice(0, 0, rank)


def _known_ranges(node: Node, x: TensorType) -> dict[int, tuple[Dim, Dim]]:
    """Return begin and length of the axes that a Slice cuts at dims."""
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
    """Return the position in an axis of this size that a bound of a slice is; None if its sign is not known."""
    if bound == 0:
        return 0
    if D.is_certain(lambda: bound >= 0):
        return D.minimum(bound, size)
    return D.maximum(size + bound, 0) if D.is_certain(lambda: bound < 0) else None


def _elements(value: Tensor) -> list[Dim | None]:
    """Return the elements of a list, those that are known."""
    if value.known is not None:
        return [as_dim(element) for element in value.known.reshape(-1)]
    return list(value.partial or ())


def dynamic_split(node: Node, axis: int) -> tuple[Tensor, ...]:
    """Convert Split with run-time sizes."""
    x, sizes = node.type(0), vector(node, 1)
    total = sizes.sum().equals(shape_vector(node, x.shape[axis : axis + 1]))
    parts = bind(node, unless(node, total, sizes), f"input 'split' does not add up to {x.shape[axis]}")
    if len(parts) != len(node.outputs):
        raise NodeError(f"input 'split' has {len(parts)} numbers for {len(node.outputs)} outputs")
    made = []
    at: Dim = 0
    for part in parts:
        made.append(node[0].slice(axis, at, part))
        at = at + part
    return tuple(made)


def _sliced_axes(node: Node, rank: int) -> list[int]:
    """Return the axes whose dims may change."""
    if node.has(3):
        known = node.value(3).known
        return list(range(rank)) if known is None else sorted({int(axis) % rank for axis in known.reshape(-1)})
    (count,) = node.type(1).shape
    if isinstance(count, int) and count > rank:
        raise NodeError(f"input 'starts' has {count} numbers for a tensor of rank {rank}")
    return list(range(count if isinstance(count, int) else rank))


def dynamic_pad(node: Node) -> Tensor:
    """Convert Pad with run-time amounts and axes."""
    x, mode = node.type(0), node.attr.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    pads = vector(node, 1)
    (amounts,) = pads.type.shape
    if not isinstance(amounts, int) or amounts % 2:
        raise NodeError(f"input 'pads' must have two numbers for each axis, got {node.type(1)}")
    halves = pads.reshape((2, amounts // 2))
    before, after = (halves.gather(i64_constant(node, i)).reshape((amounts // 2,)) for i in range(2))
    if node.has(3):
        axes = vector(node, 3)
        before, after = (by_axis(node, each, axes, x.rank) for each in (before, after))
    elif amounts // 2 != x.rank:
        raise NodeError(f"input 'pads' must have {2 * x.rank} numbers for {x}, got {amounts}")
    shape = _padded(node, x)
    if shape is None:
        own = shape_vector(node, x.shape)
        sizes = own + (before + after)
        sizes = unless(node, holds_sum(node, own, before, after), sizes)
        shape = bind(node, sizes, "input 'pads' takes away more than there is")
    value = None
    if node.has(2):
        value = scalar(node, 2)
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


def dynamic_range(node: Node) -> Tensor:
    """Convert Range with run-time bounds."""
    start, limit, delta = (scalar(node, i) for i in range(3))
    tensor_type = start.type
    if tensor_type.dtype.is_float:
        wide = "f64"
        first, last, step = (each.cast(wide) for each in (start, limit, delta))
        length = (last - first) / step
        count = as_sizes(node, maximum(length.ceil(), node.constant(0.0, "f64")))
    else:
        first, last, step = (
            each if tensor_type.dtype.name == "i64" else each.cast("i64") for each in (start, limit, delta)
        )
        nonzero = where(step.equals(0), i64_constant(node, 1), step)
        count = -((first - last) // nonzero)
        count = maximum(count, i64_constant(node, 0))
        count = unless(node, holds_sum(node, first, -last), count)
    wrong = delta.equals(0)
    count = where(wrong, i64_constant(node, WRONG), count)
    shape = bind(
        node,
        count.reshape((1,)),
        "input 'delta' must not be 0, nor the range longer than any memory",
    )
    return node.emit("steps", start, delta, shape=shape)


def nonzero_of(node: Node, x: Tensor) -> Tensor:
    """Return the indices of non-zero elements, as ONNX's NonZero: counted first."""
    tensor_type = x.type
    flags = x if tensor_type.dtype.is_bool else x.not_equals(node.constant(0, tensor_type))
    total = flags.cast("i64").sum() if tensor_type.rank else flags.cast("i64")
    count = bind(node, total.reshape((1,)), "the number of elements", [tensor_type.elements])
    return node.emit("nonzero", flags, count=count)


def positions(node: Node, count: Dim) -> Tensor:
    """Return 0, 1, 2, ... as an i64 vector."""
    if isinstance(count, int):
        require_table("the positions along a dim", count)
        return i64_constant(node, np.arange(count))
    return node.emit("steps", i64_constant(node, 0), i64_constant(node, 1), shape=(count,))


class Undivided(NodeError):
    """A shape whose divisibility is known only at run time, with -1 for the rest."""

    def __init__(self, text: str, shape: Sequence[Dim], equation: tuple[Dim, Dim] | None = None) -> None:
        super().__init__(text)
        self.shape = tuple(shape)
        self.equation = equation
        """Two dims that are equal if the shape divides the elements."""


def reshaped(x: TensorType, wanted: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """Return the result shape of a Reshape to `wanted`: 0 copies a dim, -1 is the rest."""
    shape: list[Dim] = []
    for i, dim in enumerate(wanted):
        if dim == 0 and not allow_zero:
            if i >= x.rank:
                raise NodeError(f"shape {_listed(wanted)} copies dim {i}, but the input is {x}")
            dim = x.shape[i]
        shape.append(dim)
    unknown = [i for i, dim in enumerate(shape) if dim == -1]
    if any(isinstance(dim, int) and dim < -1 for dim in shape) or len(unknown) > 1:
        raise NodeError(f"shape {_listed(wanted)} must be sizes, of which one may be -1")
    if unknown:
        known = D.product([dim for dim in shape if dim != -1])
        rest = quotient(x.elements, known)
        if rest is None:
            text = f"the input {x} cannot be reshaped to {_listed(wanted)}: {known} does not divide {x.elements}"
            number = D.product([dim for dim in shape if isinstance(dim, int) and dim != -1])
            total = quotient(x.elements, D.product([dim for dim in shape if not isinstance(dim, int)]))
            if total is None and D.symbols_of(x.elements):
                raise Undivided(text, shape)
            if total is None or not isinstance(number, int) or number < 1:
                raise NodeError(text)
            raise Undivided(text, shape, divisible(total, number))
        shape[unknown[0]] = rest
    return tuple(shape)


def _listed(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"
