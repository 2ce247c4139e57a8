"""Products of tensors: `dot_general`, `dot`, `einsum`, convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.extend.frontend import Dim, DType, Tensor, UnsupportedOperation, concat, stablehlo
from mirlo.extend.frontend import dims as D
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.ops.shape import padded
from mirlo_stablehlo.registry import converter


@converter("dot_general")
def dot_general(op: StablehloOperation) -> Tensor:
    numbers = stablehlo().DotDimensionNumbers(op.op.attributes["dot_dimension_numbers"])
    return contract(
        op,
        list(numbers.lhs_batching_dimensions),
        list(numbers.rhs_batching_dimensions),
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    )


@converter("dot")
def dot(op: StablehloOperation) -> Tensor:
    return contract(op, [], [], [op.type(0).rank - 1], [0])


@converter("einsum")
def einsum(op: StablehloOperation) -> Tensor:
    left, right = _widened(op)
    return op.emit("einsum", [left, right], equation=op.text("einsum_config"))


def contract(
    op: StablehloOperation, left_batch: list[int], right_batch: list[int], left_axes: list[int], right_axes: list[int]
) -> Tensor:
    """Return a product: batch dims first, then the remaining dims of both sides."""
    left, right = _widened(op)
    kept = [i for i in range(left.rank) if i not in left_batch + left_axes]
    others = [i for i in range(right.rank) if i not in right_batch + right_axes]
    batch = [left.shape[i] for i in left_batch]
    rows, depth, columns = (
        [left.shape[i] for i in kept],
        [left.shape[i] for i in left_axes],
        [right.shape[i] for i in others],
    )
    # A plain matrix on the right takes rows of any number of dims; a batch needs one.
    free = rows if not batch and len(left_axes) == 1 and rows else [D.product(rows)]
    lhs, turn_left = _matrix(op, left, [left_batch, kept, left_axes], (*batch, *free, D.product(depth)))
    rhs, turn_right = _matrix(
        op, right, [right_batch, right_axes, others], (*batch, D.product(depth), D.product(columns))
    )
    result = lhs.matmul(rhs, transpose_lhs=turn_left, transpose_rhs=turn_right)
    return result.reshape((*batch, *rows, *columns))


def _matrix(op: StablehloOperation, x: Tensor, groups: list[list[int]], shape: tuple[Dim, ...]) -> tuple[Tensor, bool]:
    """Return an operand with the dims of each group merged, and whether rows and columns are exchanged."""
    batch, rows, columns = groups
    order = [*batch, *rows, *columns]
    swapped = [*batch, *columns, *rows]
    natural = list(range(x.rank))
    if swapped == natural and order != natural and len(shape) == len(batch) + 2:
        return x.reshape((*shape[:-2], shape[-1], shape[-2])), True
    permuted = x.permute(order) if order != natural else x
    return permuted.reshape(shape), False


def _widened(op: StablehloOperation) -> tuple[Tensor, Tensor]:
    """Return the operands in the element type of the result, in which sums are accumulated."""
    target = op.declared().dtype
    left, right = op.operands[:2]
    return _as(op, left, target), _as(op, right, target)


def _as(op: StablehloOperation, x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype is dtype else x.cast(dtype)


@converter("convolution")
def convolution(op: StablehloOperation) -> Tensor:
    """Convert `convolution`: layouts are permuted to one that relax has, dilated inputs are spaced with zeros."""
    padding = op.ints("padding", [0] * (2 * (op.type(0).rank - 2)))
    return _convolved(op, padding[::2], padding[1::2])


@converter("dynamic_conv")
def dynamic_conv(op: StablehloOperation) -> Tensor:
    padding = op.numbers(2, "padding that is a number")
    return _convolved(op, padding[::2], padding[1::2])


def _convolved(op: StablehloOperation, low: Sequence[int], high: Sequence[int]) -> Tensor:
    numbers = stablehlo().ConvDimensionNumbers(op.op.attributes["dimension_numbers"])
    rank = op.type(0).rank
    ones = [1] * (rank - 2)
    x, kernel = _widened(op)
    spaces = [step - 1 for step in op.ints("lhs_dilation", ones)]
    if any(spaces) or any(size < 0 for size in (*low, *high)):
        axes = list(numbers.input_spatial_dimensions)
        x = _prepared(op, x, axes, low, high, spaces)
        low, high = [0] * len(ones), [0] * len(ones)
    flags = op.ints("window_reversal", [0] * len(ones))
    reversed_axes = [axis for axis, flag in zip(numbers.kernel_spatial_dimensions, flags, strict=True) if flag]
    if reversed_axes:
        kernel = kernel.flip(reversed_axes)
    input_dims = [numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions]
    output_dims = [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions]
    weights = [
        numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension,
        *numbers.kernel_spatial_dimensions,
    ]  # fmt: skip
    last = [0, *range(2, rank), 1]
    channels_last = [input_dims[i] for i in last] == list(range(rank))
    order = [input_dims[i] for i in last] if channels_last else input_dims
    layout = "N*C" if channels_last else "NC*"
    kernel_order = [*weights[2:], weights[1], weights[0]] if channels_last else weights
    words = {
        "strides": op.ints("window_strides", ones),
        "padding": [*low, *high],
        "dilations": op.ints("rhs_dilation", ones),
        "groups": op.integer("feature_group_count", 1),
        "data_layout": layout,
        "kernel_layout": "*IO" if channels_last else "OI*",
    }
    x, kernel = x.permute(order), kernel.permute(kernel_order)
    result = _grouped(op, x, kernel, words, op.integer("batch_group_count", 1), channels_last)
    final = [output_dims[i] for i in last] if channels_last else output_dims
    return result.permute([final.index(i) for i in range(rank)])


def _grouped(
    op: StablehloOperation,
    x: Tensor,
    kernel: Tensor,
    words: Mapping[str, object],
    groups: int,
    channels_last: bool,
) -> Tensor:
    """Return the convolution; with batch groups, each part of the batch has its own filters."""
    if groups == 1:
        return op.emit("conv", x, kernel, **words)
    if not isinstance(x.shape[0], int):
        raise UnsupportedOperation("batch groups of a batch that is not a number")
    filters = kernel.rank - 1 if channels_last else 0
    size = kernel.shape[filters]
    assert isinstance(size, int)
    parts = x.split((x.shape[0] // groups,) * groups, 0)
    banks = kernel.split((size // groups,) * groups, filters)
    results = [op.emit("conv", part, bank, **words) for part, bank in zip(parts, banks, strict=True)]
    return concat(results, x.rank - 1 if channels_last else 1)


def _prepared(
    op: StablehloOperation, x: Tensor, axes: list[int], low: Sequence[int], high: Sequence[int], spaces: list[int]
) -> Tensor:
    """Return the input of a convolution with zeros between its elements and around them."""
    sizes = [[0] * x.rank for _ in range(3)]
    for axis, *amounts in zip(axes, low, high, spaces, strict=True):
        for where, size in zip(sizes, amounts, strict=True):
            where[axis] = size
    return padded(op, x, op.constant(0, x.dtype), *sizes)
