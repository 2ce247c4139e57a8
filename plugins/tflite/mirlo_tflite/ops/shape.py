"""Reshaping, transposition, slices, padding, concatenation; and arithmetic on shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation, concat
from mirlo.extend.frontend import dims as D
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter


@converter("reshape")
def reshape(op: TosaOperation) -> Tensor:
    x, wanted = op.operands[0], op.dims(1)
    unknown = [i for i, dim in enumerate(wanted) if dim == -1]
    if len(unknown) > 1:
        raise UnsupportedOperation(f"has {len(unknown)} dims of -1: expected at most one")
    if not unknown:
        return x.reshape(wanted)
    rest = D.product([dim for dim in wanted if dim != -1])
    return x.reshape([D.product(x.shape) // rest if dim == -1 else dim for dim in wanted])


@converter("transpose")
def transpose(op: TosaOperation) -> Tensor:
    return op.operands[0].permute(op.ints("perms"))


@converter("reverse")
def reverse(op: TosaOperation) -> Tensor:
    return op.operands[0].flip([op.integer("axis")])


@converter("concat")
def concat_(op: TosaOperation) -> Tensor:
    return concat(op.operands, op.integer("axis"))


@converter("slice")
def slice_(op: TosaOperation) -> Tensor:
    """Convert `slice`; a size of -1 extends to the end."""
    x, begins, sizes = op.operands[0], op.dims(1), op.dims(2)
    left = [dim - begin if size == -1 else size for dim, begin, size in zip(x.shape, begins, sizes, strict=True)]
    return x.part(begins, left)


@converter("tile")
def tile(op: TosaOperation) -> Tensor:
    return op.emit("tile", op.operands[0], repeats=op.numbers(1, "multiples that are numbers"))


@converter("pad")
def pad(op: TosaOperation) -> Tensor:
    x, amounts = op.operands[0], op.numbers(1, "padding that is known")
    value = op.number(2, "a value of the padding") if len(op.operands) > 2 else 0
    return op.emit("pad", x, pads=[*amounts[::2], *amounts[1::2]], value=float(value))


# Shapes


@converter("const_shape")
def const_shape(op: TosaOperation) -> Tensor:
    return op.sizes([int(dim) for dim in np.array(op.op.attributes["values"]).reshape(-1)])


@converter("dim")
def dim(op: TosaOperation) -> Tensor:
    return op.sizes([op.type(0).shape[op.integer("axis")]])


@converter("concat_shape")
def concat_shape(op: TosaOperation) -> Tensor:
    return op.sizes([size for index in range(len(op.operands)) for size in op.dims(index)])


@converter("slice_shape")
def slice_shape(op: TosaOperation) -> Tensor:
    (begin,), (count,) = (op.numbers(index, "a begin and a size that are numbers") for index in (1, 2))
    return op.sizes(op.dims(0)[begin : begin + count])


_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add_shape": lambda a, b: a + b, "sub_shape": lambda a, b: a - b, "mul_shape": lambda a, b: a * b,
    "div_floor_shape": lambda a, b: a // b, "div_ceil_shape": D.ceildiv, "mod_shape": lambda a, b: a % b,
    "max_shape": D.maximum, "min_shape": D.minimum,
}  # fmt: skip


_OF_NUMBERS: dict[str, Callable[[int], int]] = {
    "exp2_shape": lambda x: 1 << x, "log2_ceil_shape": lambda x: (x - 1).bit_length(),
    "log2_floor_shape": lambda x: x.bit_length() - 1,
}  # fmt: skip


@converter(*_OF_NUMBERS)
def power_of_two(op: TosaOperation) -> Tensor:
    sizes = op.numbers(0, "sizes that are numbers")
    if min(sizes, default=1) < (0 if op.name == "exp2_shape" else 1) or max(sizes, default=0) > 1 << 62:
        raise UnsupportedOperation(f"has the sizes {sizes}, which have no result")
    if op.name == "exp2_shape" and max(sizes, default=0) > 62:
        raise UnsupportedOperation(f"has the sizes {sizes}: expected at most 62")
    return op.sizes([_OF_NUMBERS[op.name](size) for size in sizes])


@converter("assert_equal_shape")
def assert_equal_shape(op: TosaOperation) -> Sequence[Tensor]:
    """Check that shapes are equal, at run time if sizes are dynamic; with a flag, 1 equals any size."""
    for left, right in zip(op.dims(0), op.dims(1), strict=True):
        if left == right or (op.flag("allow_broadcast") and 1 in (left, right)):
            continue
        message = f"asserts that the sizes {left} and {right} are equal"
        if isinstance(left, int) and isinstance(right, int):
            raise UnsupportedOperation(message)
        op.builder.require_nonnegative([left - right, right - left], message)
    return []


@converter(*_ARITHMETIC)
def shape_arithmetic(op: TosaOperation) -> Tensor:
    pairs = zip(op.dims(0), op.dims(1), strict=True)
    try:
        return op.sizes([_ARITHMETIC[op.name](a, b) for a, b in pairs])
    except ZeroDivisionError:
        raise UnsupportedOperation("divides a size by 0") from None
