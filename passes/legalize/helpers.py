"""Shared parts of default rules: types of values, axes, broadcasting, low precision computed in f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.errors import OpMistake
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import Expr, TensorExpr, clamp, constant, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.narrow import largest
from mirlo.dialects.tir.compute.numpy_functions import ELEMENT
from mirlo.runtime.callbacks import checked


class PrimCaller(Protocol):
    """The interface of builders of prim functions and calls, such as `LegalizeBuilder`."""

    def call_prim(
        self, body: Callable[..., TensorExpr], *values: ir.Value | None, name: str | None = None
    ) -> ir.Value: ...


Index = TypeVar("Index")


def tensor_type(value: ir.Value) -> TensorType:
    """Return the type of a value that is known to be a tensor."""
    result = TensorType.from_mlir(value.type)
    if result is None:
        raise TypeError(f"expected a tensor of a known element type, got {value.type}")
    return result


def shape_of(value: ir.Value) -> tuple[Dim, ...]:
    """Return the dims of a value: integers, and symbolic dims that support the same arithmetic."""
    return tensor_type(value).shape


def fixed(size: Dim) -> int:
    """Return a size that must be a number; the rule declines otherwise."""
    if not isinstance(size, int):
        raise UndecidedDim(f"the size {size} must be a number")
    return size


def short_name(op: ir.OpView) -> str:
    """Return the operator's name without its namespace."""
    return op.operation.name.split(".", 1)[1]


def wide_dtype(element: DType) -> DType:
    """Return the type of computation and accumulation: f32 for narrower floats."""
    return DTYPES["f32"] if element.is_float and element.bits < 32 else element


def wide(x: Expr) -> Expr:
    """Return the element as `wide_dtype`."""
    return x.cast(wide_dtype(x.dtype))


def weighted(value: Expr, weight: Expr) -> Expr:
    """Return an element times a weight, in f32 or wider."""
    value = wide(value) if value.dtype.is_float else value.cast("f32")
    return value * weight.cast(value.dtype)


def sum_of(terms: Sequence[Expr]) -> Expr:
    """Return the sum of at least one expression, added in order."""
    total, *rest = terms
    for term in rest:
        total = total + term
    return total


def ordered_bits(x: Expr) -> Expr:
    """Return an unsigned integer that orders as an element does: NaN last, zeros equal."""
    kind = x.dtype
    unsigned = f"u{kind.bits}"
    sign = constant(1 << (kind.bits - 1), unsigned)
    if not kind.is_float:
        return x.bitcast(unsigned) ^ sign if kind.name.startswith("i") else x
    bits = select(x.equals(0.0), constant(0, unsigned), x.bitcast(unsigned))
    bits = select(x.differs(x), constant((1 << (kind.bits - 1)) - 1, unsigned), bits)
    return select(bits >= sign, ~bits, bits | sign)


def stored_saturated(x: Expr, kind: DType) -> Expr:
    """Return a float as an element of a type; values outside of an integer type become its nearest value."""
    if kind.is_float or kind.is_bool:
        return x.cast(kind)
    low, high = (0, (1 << kind.bits) - 1) if kind.is_unsigned else (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1)
    number = x.dtype.to_numpy().type
    most = number(high)
    if int(most) > high:  # rounded up: the next smaller number has a value of the type
        most = np.nextafter(most, number(0))
    return clamp(x, float(low), float(most)).cast(kind)


def saturated(x: Expr) -> Expr:
    """Clamp a value of a float type of 8 bits or less to its range; NaN stays."""
    bound = largest(x.dtype)
    return clamp(x, -bound, bound)


def aligned(tensor: TensorExpr, axes: Sequence[Expr]) -> Expr:
    """Return the element that broadcasting reads at these output axes."""
    return tensor.at(*aligned_indices(tensor.shape, axes))


def aligned_indices(shape: Sequence[Dim], axes: Sequence[Index]) -> list[Index | int]:
    """Return indices into a tensor of this shape, broadcast against trailing output axes."""
    own = axes[len(axes) - len(shape) :] if shape else ()
    return [0 if dim == 1 else axis for dim, axis in zip(shape, own, strict=True)]


def elementwise(op: ir.OpView, b: PrimCaller, values: Sequence[ir.Value], function: Callable[..., Expr]) -> ir.Value:
    """Call a prim function that applies `function` to the broadcast elements of the values."""
    name = short_name(op)
    function = checked(function, ELEMENT, f"the elements of '{op.operation.name}'", OpMistake)

    def body(p: PrimBuilder, *tensors: TensorExpr) -> TensorExpr:
        rank = max(t.rank for t in tensors)
        shape: list[Dim] = [1] * rank
        for tensor in tensors:
            for i, dim in enumerate(tensor.shape):
                at = rank - tensor.rank + i
                shape[at] = dim if shape[at] == 1 else shape[at]
        return p.compute(shape, lambda *axes: function(*(aligned(t, axes) for t in tensors)), name=name)

    return b.call_prim(body, *values)


def split_axes(axes: Sequence[Expr], dims: Sequence[int], rank: int) -> list[Expr]:
    """Return indices of a tensor of this rank whose reduction axes `dims` are the last ones of `axes`, in order.

    The other dims take the leading axes in order.
    """
    kept = iter(axes[: len(axes) - len(dims)])
    reduced = dict(zip(dims, axes[len(axes) - len(dims) :], strict=True))
    return [reduced[i] if i in reduced else next(kept) for i in range(rank)]


def dims_vector(p: PrimBuilder, dims: Sequence[Dim]) -> TensorExpr:
    """Return a vector of i64 of these dims."""

    def element(axis: Expr) -> Expr:
        result = constant(dims[-1], "i64")
        for i, dim in reversed(list(enumerate(dims[:-1]))):
            result = select(axis.equals(i), constant(dim, "i64"), result)
        return result

    result: TensorExpr = p.compute((len(dims),), element if dims else lambda axis: axis.cast("i64"), name="dims")
    return result
