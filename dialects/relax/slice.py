"""Slices, padding, concatenation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Dims, Float, Int, Ints, Str
from mirlo.dialects.core.conditions import require_at_most
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand, operands, results
from mirlo.dialects.core.traits import AxisAttributes, Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    normalize_axis,
    require_distinct_axes,
    require_equal_dims,
    require_equal_shapes,
    same_dtype,
    shape_text,
)

SPLIT_RUNS = 16


class StridedSlice(RelaxOp, name="strided_slice"):
    """numpy's `x[begin:end:stride]` along some axes: negative positions count from the end, ends are clamped.

    A begin or end beyond the tensor stands for its edge, as in numpy. With a negative stride, an end less than minus
    the size of the dim includes the first element.
    """

    TRAITS = (Trait.SUBSET,)
    PRECISION = Precision.MOVES
    AXES = AxisAttributes(axes="axes")
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.strided_slice)
    sharding = staticmethod(shardings.strided_slice)
    x = operand()
    axes = Ints()
    begin = Ints()
    end = Ints()
    strides = Ints()

    @staticmethod
    def infer(
        x: TensorType, *, axes: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
    ) -> TensorType:
        if not len(axes) == len(begin) == len(end) == len(strides):
            lengths = f"{len(axes)}, {len(begin)}, {len(end)} and {len(strides)}"
            raise OpError(f"axes, begin, end and strides must be equally long, got {lengths} numbers")
        if 0 in strides:
            raise OpError(f"strides must not be 0, got {list(strides)}")
        shape = list(x.shape)
        for axis, *bounds in zip(require_distinct_axes(axes, x.rank), begin, end, strides, strict=True):
            shape[axis] = slice_size(shape[axis], *bounds)
        return x.with_shape(shape)


def slice_size(size: Dim, begin: int, end: int, stride: int) -> Dim:
    """Return how many elements `[begin:end:stride]` takes from a dim."""
    if isinstance(size, int):
        return len(range(*slice(begin, end, stride).indices(size)))
    if stride < 0:
        # Going backwards from b down to (excluding) e takes the elements of going forwards from e + 1 to b + 1.
        begin, end = _from_end(end), _from_end(begin)
        stride = -stride
    low, high = _position(size, begin), _position(size, end)
    if low == 0:
        span = high
    elif high == size:
        span = _remaining(size, begin)
    else:
        span = D.maximum(high - low, 0)
    return D.ceildiv(span, stride)


def slice_start(size: Dim, begin: int, stride: int) -> Dim:
    """Return the first position that `[begin:end:stride]` takes from a dim, if it takes any."""
    if isinstance(size, int):
        return slice(begin, None, stride).indices(size)[0]
    if stride > 0:
        return _position(size, begin)
    return size + begin if begin < 0 else D.minimum(size - 1, begin)


_MAX_BOUND = 2**31 - 2
"""Exporters write 'to the end' as a value near the largest 32-bit or 64-bit integer; no dim reaches this bound."""


def _from_end(position: int) -> int:
    """Return the next position; the position after -1, the last element, is the end."""
    return _MAX_BOUND if position == -1 else position + 1


def _position(size: Dim, position: int) -> Dim:
    """Return a position clamped to a symbolic dim, which is not negative whatever its form."""
    if position == 0:
        return 0
    if position < 0:
        return 0 if position <= -_MAX_BOUND else D.maximum(size + position, 0)
    return size if position >= _MAX_BOUND else D.minimum(size, position)


def _remaining(size: Dim, begin: int) -> Dim:
    """Return the number of elements from `begin` to the end."""
    return D.maximum(size - begin, 0) if begin > 0 else D.minimum(size, -begin)


class Pad(RelaxOp, name="pad"):
    """Elements added around x: all begins, then all ends; a negative value crops.

    `mode` selects the added elements: `value`, a reflection that excludes the edge, the edge, or x repeated.
    """

    meaning = staticmethod(meanings.pad)
    sharding = staticmethod(shardings.pad)
    PRECISION = Precision.REGISTERS
    AXES = AxisAttributes(per_side=("pads",))
    FLOPS_PER_ELEMENT = 0
    x = operand()
    pads = Ints()
    mode = Str("constant", choices=("constant", "reflect", "edge", "wrap"))
    value = Float(0.0)

    @staticmethod
    def infer(x: TensorType, *, pads: tuple[int, ...], mode: str, value: float) -> TensorType:
        if len(pads) != 2 * x.rank:
            raise OpError(f"pads must be {2 * x.rank} numbers, all begins then all ends of {x}, got {list(pads)}")
        shape = []
        for i, (dim, begin, end) in enumerate(zip(x.shape, pads[: x.rank], pads[x.rank :], strict=True)):
            size = dim + begin + end
            require_at_most(0, size, f"pads {begin} and {end} crop axis {i} of {x} to a negative size")
            if mode != "constant" and max(begin, end) > 0:
                require_at_most(1, dim, f"axis {i} of {x} is empty: mode '{mode}' has nothing to pad it with")
            shape.append(size)
        return x.with_shape(shape)


class Concat(RelaxOp, name="concat"):
    """The operands concatenated along the axis."""

    PRECISION = Precision.MOVES
    AXES = AxisAttributes(axis="axis")
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda xs, *, axis: np.concatenate(xs, axis))
    sharding = staticmethod(shardings.concat)
    xs = operands()
    axis = Int()

    @classmethod
    def build(cls, *arguments: Any, **kwargs: Any) -> Any:
        """Build the operation; operands with more runs of types than one operation holds are joined in steps."""
        if len(arguments) != 1:
            return super().build(*arguments, **kwargs)
        xs = list(arguments[0])
        while (count := cls._operand_layout.fits([x.type for x in xs])) < len(xs):
            joined = super().build(xs[:count], **{**kwargs, "result_types": None})
            xs = [joined.output, *xs[count:]]
        return super().build(xs, **kwargs)

    @staticmethod
    def infer(xs: list[TensorType], *, axis: int) -> TensorType:
        _require_some(xs)
        first = xs[0]
        if first.rank == 0:
            raise OpError("operands must have rank 1 or more: stack joins scalars")
        at = normalize_axis(axis, first.rank)
        total = first.shape[at]
        for i, x in enumerate(xs[1:], start=1):
            if x.rank != first.rank:
                raise OpError(f"operands must have one rank, got {first} and {x} (operand #{i})")
            rest, first_rest = (t.shape[:at] + t.shape[at + 1 :] for t in (x, first))
            require_equal_shapes(rest, first_rest, f"operands #{i} and #0, apart from axis {at},")
            total = total + x.shape[at]
        return first.with_shape((*first.shape[:at], total, *first.shape[at + 1 :]))


class Stack(RelaxOp, name="stack"):
    """The operands, all of one shape, stacked along a new axis."""

    sharding = staticmethod(shardings.stack)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda xs, *, axis: np.stack(xs, axis))
    xs = operands()
    axis = Int(0)

    @staticmethod
    def infer(xs: list[TensorType], *, axis: int) -> TensorType:
        _require_some(xs)
        first = xs[0]
        for i, x in enumerate(xs[1:], start=1):
            require_equal_shapes(x.shape, first.shape, f"operands #{i} and #0")
        at = normalize_axis(axis, first.rank + 1)
        return first.with_shape((*first.shape[:at], len(xs), *first.shape[at:]))


class Split(RelaxOp, name="split"):
    """Consecutive slices of x along the axis, with these sizes."""

    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.split)
    sharding = staticmethod(shardings.split)
    x = operand()
    outputs = results(runs=SPLIT_RUNS)
    axis = Int()
    sizes = Dims()

    @staticmethod
    def infer(x: TensorType, *, axis: int, sizes: tuple[Dim, ...]) -> tuple[TensorType, ...]:
        if not sizes:
            raise OpError("needs at least one size")
        at = normalize_axis(axis, x.rank)
        total: Dim = sum(sizes)
        require_equal_dims(x.shape[at], total, f"axis {at} of {x} and the sum of the sizes {shape_text(sizes)}")
        return tuple(x.with_shape((*x.shape[:at], size, *x.shape[at + 1 :])) for size in sizes)


def _require_some(xs: list[TensorType]) -> None:
    if not xs:
        raise OpError("needs at least one operand")
    same_dtype("operands", *xs)
