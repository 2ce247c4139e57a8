"""Distinct elements with their counts, in a number that depends on data; common divisors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation, dtype, maximum, where
from mirlo.extend.frontend import dims as D
from mirlo_torch.bounds import require_none
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import converter, decomposition

if TYPE_CHECKING:
    import torch


@converter("aten._unique2.default")
def unique(
    op: AtenOperation, x: Tensor, is_sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[Tensor]:
    """Convert `unique`: the distinct elements in order, the index of each element among them, and their counts."""
    flat = x.reshape((D.product(x.shape),))
    order = op.sorted_order(flat, 0, False)
    values, at, counts = _runs(op, flat.gather(order))
    inverse = op.emit("scatter_elements", at, order, at, axis=0)
    return _returned(op, values, inverse.reshape(x.shape), counts, return_inverse, return_counts)


@converter("aten.unique_consecutive.default")
def unique_consecutive(
    op: AtenOperation, x: Tensor, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> list[Tensor]:
    """Convert `unique_consecutive`: the first of each run of equal elements."""
    if axis is not None and x.rank > 1:
        raise UnsupportedOperation("compares slices along an axis, which is not supported: leave dim out")
    values, at, counts = _runs(op, x.reshape((D.product(x.shape),)))
    return _returned(op, values, at.reshape(x.shape), counts, return_inverse, return_counts)


def _returned(
    op: AtenOperation, values: Tensor, inverse: Tensor, counts: Tensor, has_inverse: bool, has_counts: bool
) -> list[Tensor]:
    """Return the results; those that are not requested are empty, as in the trace."""
    nothing = op.constant(0, counts.dtype, (0,))
    is_whole = op.result(1).shape == inverse.shape
    return [values, inverse if has_inverse or is_whole else nothing, counts if has_counts else nothing]


def _runs(op: AtenOperation, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first element of each run of equal ones, the number of each element's run, and the runs' lengths."""
    size, index, kind = x.shape[0], dtype("i64"), x.dtype
    position = op.positions(TensorType((size,), index), 0)
    starts = position.equals(0) | x.not_equals(x.gather(maximum(position - 1, 0))) if size != 0 else x.cast("bool")
    at = starts.cast(index).cumsum(axis=0) - 1
    room = (op.builder.bind_result(op, starts.cast(index).sum()),)
    stored = x.cast("i8") if kind.is_bool else x
    values = op.emit("scatter_elements", op.constant(0, stored.dtype).expand(room), at, stored, axis=0)
    ones = op.constant(1, index).expand((size,))
    counts = op.emit("scatter_elements", op.constant(0, index).expand(room), at, ones, axis=0, reduction="add")
    return values.cast(kind), at, counts


@converter("aten.bincount.default")
def bincount(op: AtenOperation, x: Tensor, weights: Tensor | None = None, least: int = 0) -> Tensor:
    """Convert `bincount`: for each number from 0, the sum of the weights, or the count, of the elements equal to it."""
    kind = op.dtype
    at = x.cast("i64")
    require_none(op, at < 0, "numbers to count that are not negative")
    count = op.builder.bind_result(op, maximum(at.max() + 1, least) if x.shape[0] != 0 else at.like(least))
    each = op.constant(1, kind).expand(x.shape) if weights is None else weights.cast(kind)
    return op.emit("scatter_elements", op.constant(0, kind).expand((count,)), at, each, axis=0, reduction="add")


@converter("aten.gcd.default")
def greatest_divisor(op: AtenOperation, left: Operand, right: Operand) -> Tensor:
    """Convert `gcd`: Euclid's algorithm, until all remainders are 0."""
    return abs(_divisor(op, *_of_one_shape(op, left, right)))


@converter("aten.lcm.default")
def least_multiple(op: AtenOperation, left: Operand, right: Operand) -> Tensor:
    """Convert `lcm`, which is 0 for two zeros."""
    x, y = _of_one_shape(op, left, right)
    divisor = _divisor(op, x, y)
    is_zero = divisor.equals(0)
    return where(is_zero, 0, abs(x / where(is_zero, 1, divisor, op.dtype) * y), op.dtype)


def _of_one_shape(op: AtenOperation, left: Operand, right: Operand) -> tuple[Tensor, Tensor]:
    x, y = (op.operand(each, op.dtype).expand(op.shape) for each in (left, right))
    return x, y


def _divisor(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    """Return a greatest common divisor, positive or negative."""

    def goes_on(values: list[Tensor]) -> Tensor:
        return values[1].not_equals(0).any()

    def step(values: list[Tensor]) -> list[Tensor]:
        whole, rest = values
        is_done = rest.equals(0)
        remainder = whole.fmod(where(is_done, 1, rest, op.dtype))
        return [where(is_done, whole, rest, op.dtype), where(is_done, 0, remainder, op.dtype)]

    return op.builder.repeat([x, y], goes_on, step)[0]


@decomposition("aten.mode.default")
def most_frequent(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least of the most frequent elements along a dim, and its last index, by sorting."""
    import torch

    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    rows = x.movedim(dim, -1)
    values, order = torch.sort(rows, dim=-1, stable=True)
    place = torch.arange(values.shape[-1]).expand(values.shape)
    is_same = values[..., 1:] == values[..., :-1]
    starts = torch.cat([place[..., :1], torch.where(is_same, 0, place[..., 1:])], -1).cummax(-1).values
    at = (place - starts).argmax(-1, keepdim=True)
    results = (each.gather(-1, at) for each in (values, order))
    value, index = (each.movedim(-1, dim) if keepdim else each.squeeze(-1) for each in results)
    return value, index
