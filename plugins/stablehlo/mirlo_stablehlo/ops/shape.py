"""Reshaping, broadcasting, transposition, slices, padding, concatenation; constants and positions."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Dim, Tensor, TensorType, UnsupportedOperation, concat, read_dense
from mirlo.extend.frontend import dims as D
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.registry import converter


@converter("constant")
def constant(op: StablehloOperation) -> Tensor:
    """Convert `constant`; a splat is kept as one element."""
    declared = op.declared()
    value = op.op.attributes["value"]
    if getattr(value, "is_splat", False):
        one = TensorType((), declared.dtype)
        if declared.dtype.name in ("f32", "f64", "bool") or declared.dtype.is_integer:
            return op.constant(value.get_splat_value().value, declared, declared.shape)
        return op.constant(read_dense(value, one), declared, declared.shape)
    return op.constant(read_dense(value, declared), declared)


@converter("iota")
def iota(op: StablehloOperation) -> Tensor:
    declared = op.declared()
    if not declared.is_static:
        raise UnsupportedOperation("needs a static shape, which dynamic_iota does not")
    return op.positions(declared, op.integer("iota_dimension"))


@converter("dynamic_iota")
def dynamic_iota(op: StablehloOperation) -> Tensor:
    return op.positions(TensorType(op.dims(0), op.declared().dtype), op.integer("iota_dimension"))


@converter("reshape")
def reshape(op: StablehloOperation) -> Tensor:
    x, declared = op.operands[0], op.declared()
    if x.array is not None and x.array.size == 1:
        return op.constant(x.array.reshape(()), declared, declared.shape)
    return x.reshape(_known_shape(op, x.shape, declared.shape))


def _known_shape(op: StablehloOperation, old: Sequence[Dim], new: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the declared shape; one unknown dim is computed from the others."""
    unknown = [i for i, dim in enumerate(new) if not isinstance(dim, int)]
    if not unknown:
        return tuple(new)
    if len(unknown) > 1:
        raise UnsupportedOperation("has several dims that are not known: dynamic_reshape says what they are")
    rest = D.product([dim for dim in new if isinstance(dim, int)])
    return tuple(D.product(tuple(old)) // rest if i in unknown else dim for i, dim in enumerate(new))


@converter("dynamic_reshape")
def dynamic_reshape(op: StablehloOperation) -> Tensor:
    x = op.operands[0]
    return x.reshape(op.dims(1))


@converter("broadcast_in_dim")
def broadcast_in_dim(op: StablehloOperation) -> Tensor:
    declared = op.declared()
    if not declared.is_static:
        raise UnsupportedOperation("needs a static shape, which dynamic_broadcast_in_dim does not")
    return broadcast(op, op.operands[0], declared, op.ints("broadcast_dimensions"))


@converter("dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(op: StablehloOperation) -> Tensor:
    shape = TensorType(op.dims(1), op.declared().dtype)
    return broadcast(op, op.operands[0], shape, op.ints("broadcast_dimensions"))


@converter("broadcast")
def broadcast_leading(op: StablehloOperation) -> Tensor:
    """Convert `broadcast`, which prepends dims."""
    x = op.operands[0]
    shape = (*op.ints("broadcast_sizes"), *x.shape)
    return broadcast(op, x, TensorType(shape, x.dtype), list(range(len(shape) - x.rank, len(shape))))


def broadcast(op: StablehloOperation, x: Tensor, type_: TensorType, axes: Sequence[int]) -> Tensor:
    """Return x with its dims at these axes of a larger shape."""
    if x.array is not None and x.array.size == 1:
        return op.constant(x.array.reshape(()), type_, type_.shape)
    order = sorted(range(len(axes)), key=axes.__getitem__)
    result = op.tensor(op.builder.compact(x))
    rank = result.rank
    dims = [1] * (x.rank - rank) + list(result.shape)
    if order != list(range(len(axes))):
        if rank < x.rank:
            result = result.reshape(dims)
        result = result.permute(order)
        dims = [dims[i] for i in order]
    placed: list[Dim] = [1] * type_.rank
    for dim, axis in zip(dims, sorted(axes), strict=True):
        placed[axis] = dim
    if tuple(placed) != type_.shape:  # leading dims of 1 are not needed to broadcast
        while len(placed) > rank and placed[0] == 1:
            placed.pop(0)
    if tuple(placed) != result.shape:
        result = result.reshape(placed)
    return result.expand(type_.shape)


@converter("transpose")
def transpose(op: StablehloOperation) -> Tensor:
    return op.operands[0].permute(op.ints("permutation"))


@converter("reverse")
def reverse(op: StablehloOperation) -> Tensor:
    axes = op.ints("dimensions")
    return op.operands[0].flip(axes) if axes else op.operands[0]


@converter("concatenate")
def concatenate(op: StablehloOperation) -> Tensor:
    axis = op.integer("dimension")
    operands = [operand for operand in op.operands if operand.shape[axis] != 0] or list(op.operands[:1])
    return operands[0] if len(operands) == 1 else concat(operands, axis)


@converter("slice")
def slice_(op: StablehloOperation) -> Tensor:
    bounds = zip(*(op.ints(name) for name in ("start_indices", "limit_indices", "strides")), strict=True)
    return op.operands[0][tuple(slice(*each) for each in bounds)]


@converter("real_dynamic_slice")
def real_dynamic_slice(op: StablehloOperation) -> Tensor:
    """Convert `real_dynamic_slice`, whose bounds are sizes."""
    begin, end, steps = op.dims(1), op.dims(2), op.numbers(3, "strides that are numbers")
    shape = [D.ceildiv(b - a, s) for a, b, s in zip(begin, end, steps, strict=True)]
    return op.operands[0].part(begin, shape, steps)


@converter("pad")
def pad(op: StablehloOperation) -> Tensor:
    low, high, interior = (op.ints(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    return padded(op, op.operands[0], op.operands[1], low, high, interior)


@converter("dynamic_pad")
def dynamic_pad(op: StablehloOperation) -> Tensor:
    interior = op.numbers(4, "interior padding that is a number")
    return padded(op, op.operands[0], op.operands[1], op.dims(2), op.dims(3), interior)


def padded(
    op: StablehloOperation, x: Tensor, value: Tensor, low: Sequence[Dim], high: Sequence[Dim], interior: Sequence[int]
) -> Tensor:
    """Return x with elements `value` between its own and around them; negative sizes crop."""
    for axis, count in enumerate(interior):
        if count:
            x = _spaced(op, x, value, axis, count)
    if not any(low) and not any(high):
        return x
    number = value.constant
    is_exact = number is not None and (x.dtype.is_float or abs(float(number)) < 1 << 24)
    numbers = [size for size in (*low, *high) if isinstance(size, int)]
    if number is not None and is_exact and len(numbers) == len(low) + len(high):
        return op.emit("pad", x, pads=numbers, mode="constant", value=float(number))
    shape = tuple(a + dim + b for a, dim, b in zip(low, x.shape, high, strict=True))
    return op.emit("pad_at", x, op.sizes(tuple(low)), value, shape=shape, mode="constant")


def _spaced(op: StablehloOperation, x: Tensor, value: Tensor, axis: int, count: int) -> Tensor:
    """Return x with `count` elements `value` between those along an axis."""
    if not isinstance(x.shape[axis], int) and not D.is_certain(lambda: x.shape[axis] > 0):
        raise UnsupportedOperation("interior padding of a dim that may be 0")
    if x.shape[axis] == 0:
        return x
    apart = x.expand_dims(axis + 1)
    zeros = [0] * apart.rank
    after = [count if i == axis + 1 else 0 for i in range(apart.rank)]
    wide = padded(op, apart, value, zeros, after, zeros)
    size = x.shape[axis] * (count + 1)
    flat = wide.reshape((*x.shape[:axis], size, *x.shape[axis + 1 :]))
    return padded(op, flat, value, zeros[1:], [-count if i == axis else 0 for i in range(x.rank)], zeros[1:])


@converter("get_dimension_size")
def get_dimension_size(op: StablehloOperation) -> Tensor:
    """Convert the size of a dim that is no symbol, such as one of more than 32 bits."""
    result = op.emit("dims_tensor", dims=(op.type(0).shape[op.integer("dimension")],))
    return result.cast(op.declared().dtype).reshape(())
