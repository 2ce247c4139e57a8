"""Shared parts of inference functions: broadcasting, axes, agreement of types, sliding windows."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.conditions import require_at_most
from mirlo.dialects.core.dims import BroadcastDiffers, Dim, DimsDiffer
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.records import dataclass

FLOAT = ("float",)
BOOL = ("bool",)
NUMBER = ("float", "int", "uint")
INTEGER = ("int", "uint")
ANY = ("float", "int", "uint", "bool")
BITS = ("int", "uint", "bool")


def class_name(name: str) -> str:
    """Return the class name of an operator: `LogSoftmax` for `log_softmax`."""
    return "".join(part.capitalize() for part in name.split("_"))


def shape_text(shape: Sequence[Dim]) -> str:
    """Return a shape as error messages print it."""
    return f"[{', '.join(map(str, shape))}]"


def broadcast_dims(left: Dim, right: Dim) -> Dim:
    """Broadcast two dims by numpy's rule; raise if neither is 1 and they are not known to be equal."""
    if left == 1:
        return right
    if right == 1 or left == right:
        return left
    if left is D.UNKNOWN or right is D.UNKNOWN:
        known = right if left is D.UNKNOWN else left
        return known if isinstance(known, int) and known != 1 else D.UNKNOWN
    text = f"dims {left} and {right} are neither equal nor 1{_naming_hint(left, right)}"
    raise DimsDiffer(text, left, right)


def _naming_hint(left: Dim, right: Dim) -> str:
    """Return a hint for dims that may be equal and differ only by symbol name."""
    numbers = [dim for dim in (left, right) if isinstance(dim, int)]
    if len(numbers) == 2:
        return ""
    if numbers:
        return f" (a dim that is always {numbers[0]} must be declared {numbers[0]})"
    return " (dims that are always equal must have one name)"


def require_broadcast_to(shape: Sequence[Dim], target: Sequence[Dim], what: str) -> None:
    """Check numpy's `broadcast_to`: every dim is 1 or that of the target."""
    text = f"{what} of shape {shape_text(shape)} does not broadcast to {shape_text(target)}"
    if len(shape) > len(target):
        raise OpError(text)
    for i, (dim, wanted) in enumerate(zip(shape, target[len(target) - len(shape) :], strict=True)):
        if not _may_become(dim, wanted):
            raise BroadcastDiffers(text, dim, wanted, i - len(shape), [tuple(shape)], wanted)


def _may_become(dim: Dim, target: Dim) -> bool:
    return dim == 1 or dim == target or dim is D.UNKNOWN or target is D.UNKNOWN


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the shape of an elementwise operation on these shapes, by numpy's rules."""
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape):
            at = rank - len(shape) + i
            try:
                result[at] = broadcast_dims(result[at], dim)
            except DimsDiffer as error:
                listed = " and ".join(map(shape_text, shapes))
                text = f"shapes {listed} do not broadcast: {error}"
                raise BroadcastDiffers(text, error.left, error.right, at - rank, list(map(tuple, shapes))) from None
    return tuple(result)


def same_dtype(op_names: str, *types: TensorType | None) -> None:
    """Check that all present operands have one element type."""
    present = [t for t in types if t is not None]
    if any(t.dtype is not present[0].dtype for t in present):
        raise OpError(f"{op_names} must have one element type, got {', '.join(str(t.dtype) for t in present)}")


def normalize_axis(axis: int, rank: int) -> int:
    """Return a non-negative axis; raise for an axis outside the rank."""
    if rank == 0:
        raise OpError(f"axis {axis} is outside a tensor of rank 0, which has no axes")
    if not -rank <= axis < rank:
        raise OpError(f"axis {axis} is outside a tensor of rank {rank}: expected {-rank} to {rank - 1}")
    return axis % rank


def normalize_axes(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return sorted non-negative axes; None stands for all."""
    if axes is None:
        return tuple(range(rank))
    return tuple(sorted(require_distinct_axes(axes, rank)))


def require_rank(t: TensorType, rank: int, what: str) -> None:
    if t.rank != rank:
        raise OpError(f"{what} must have rank {rank}, got {t}")


def require_kind(t: TensorType, kinds: Sequence[str], what: str) -> None:
    """Check that the element type is of one of these kinds ('float', 'int', 'uint', 'bool')."""
    if t.dtype.kind not in kinds:
        words = {"float": "floating point", "int": "integer", "uint": "unsigned integer", "bool": "bool"}
        *most, last = (words[kind] for kind in kinds)
        raise OpError(f"{what} must be {' or '.join([', '.join(most), last] if most else [last])}, got {t.dtype}")


def require_equal_dims(left: Dim, right: Dim, what: str) -> None:
    """Check that two dims are not known to differ."""
    if left is D.UNKNOWN or right is D.UNKNOWN or left == right:
        return
    raise DimsDiffer(f"{what} must agree, got {left} and {right}{_naming_hint(left, right)}", left, right)


def require_equal_shapes(left: Sequence[Dim], right: Sequence[Dim], what: str) -> None:
    """Check that two shapes have one rank, and no dims that are known to differ."""
    pairs = zip(left, right, strict=False)
    text = f"{what} must have one shape, got {shape_text(left)} and {shape_text(right)}"
    if len(left) != len(right):
        raise OpError(text)
    for a, b in pairs:
        if not (a == b or a is D.UNKNOWN or b is D.UNKNOWN):
            raise DimsDiffer(text, a, b)


def require_vector(t: TensorType, size: Dim, what: str, per: str) -> None:
    """Check that a tensor is a vector with one element per `per`."""
    text = f"{what} must be a vector of one number per {per}, {size}, got {t}"
    if t.rank != 1:
        raise OpError(text)
    if not (t.shape[0] == size or t.shape[0] is D.UNKNOWN or size is D.UNKNOWN):
        raise DimsDiffer(text, t.shape[0], size)


def require_one_count(before: TensorType, after: TensorType) -> None:
    """Check that two shapes are not known to hold different numbers of elements.

    Symbolic counts are known to differ if their difference is a constant, or if they are multiples of one product.
    """
    left, right = before.elements, after.elements
    if left is D.UNKNOWN or right is D.UNKNOWN or left == right:
        return
    if isinstance(left - right, int) or D.same_product(left, right):
        raise OpError(f"{before} has {left} elements, but shape {shape_text(after.shape)} has {right}")


def require_distinct_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return non-negative axes in the given order; raise if one is repeated."""
    result = tuple(normalize_axis(axis, rank) for axis in axes)
    if len(set(result)) != len(result):
        raise OpError(f"axes {list(axes)} name one axis twice")
    return result


def product_dtype(what: str, left: TensorType, right: TensorType, out_dtype: DType | None) -> DType:
    """Return the element type of a sum of products: that of the operands, or `out_dtype`, which must be no narrower.

    Signed and unsigned 8-bit integers may be mixed if `out_dtype` sets the type of the accumulators.
    """
    mixed = out_dtype is not None and {left.dtype.name, right.dtype.name} == {"i8", "u8"}
    if not mixed:
        same_dtype(what, left, right)
    require_kind(left, NUMBER, what)
    if out_dtype is None:
        return left.dtype
    narrow = out_dtype.bits < left.dtype.bits or (out_dtype.kind == "uint" and left.dtype.kind == "int")
    if out_dtype.is_float != left.dtype.is_float or out_dtype.is_bool or narrow:
        raise OpError(f"out_dtype {out_dtype} cannot hold sums of products of {left.dtype}")
    return out_dtype


CHANNELS_FIRST, CHANNELS_LAST = "NC*", "N*C"
DATA_LAYOUTS = (CHANNELS_FIRST, CHANNELS_LAST)
KERNEL_LAYOUTS = ("OI*", "*IO", "O*I")


def channel_axis(layout: str, rank: int) -> int:
    return 1 if layout == CHANNELS_FIRST else rank - 1


def spatial_axes(layout: str, rank: int) -> range:
    return range(2, rank) if layout == CHANNELS_FIRST else range(1, rank - 1)


def data_shape(layout: str, batch: Dim, channels: Dim, spatial: Sequence[Dim]) -> tuple[Dim, ...]:
    return (batch, channels, *spatial) if layout == CHANNELS_FIRST else (batch, *spatial, channels)


def kernel_axes(layout: str, rank: int) -> tuple[int, int, tuple[int, ...]]:
    """Return the axes of out channels, in channels and window of a kernel in this layout."""
    letters = layout.replace("*", "*" * (rank - 2))
    return letters.index("O"), letters.index("I"), tuple(i for i, letter in enumerate(letters) if letter == "*")


def kernel_permutation(layout: str, wanted: str, rank: int) -> list[int]:
    """Return the permutation of axes from one kernel layout to another."""
    out, channels, window = kernel_axes(layout, rank)
    dims = iter(window)
    letters = wanted.replace("*", "*" * (rank - 2))
    return [out if letter == "O" else channels if letter == "I" else next(dims) for letter in letters]


def spatial_rank(x: TensorType, what: str) -> int:
    """Return the number of spatial dims of a batch of images (or signals, or volumes)."""
    if x.rank < 3:
        raise OpError(f"{what} must have a batch dim, a channel dim and at least one spatial dim, got {x}")
    return x.rank - 2


def per_dim(values: Sequence[int], count: int, default: int, least: int, what: str) -> tuple[int, ...]:
    """Return one value per spatial dim; an empty list stands for the default everywhere."""
    if not values:
        return (default,) * count
    if len(values) != count:
        raise OpError(f"{what} must be one number per spatial dim, {count} of them, got {list(values)}")
    for value in values:
        if value < least:
            raise OpError(f"{what} must be at least {least}, got {list(values)}")
    return tuple(values)


def padding_pairs(padding: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return (begin, end) per spatial dim."""
    if not padding:
        return [(0, 0)] * count
    if len(padding) != 2 * count:
        raise OpError(f"padding must be {2 * count} numbers, all begins then all ends, got {list(padding)}")
    if any(amount < 0 for amount in padding):
        raise OpError(f"padding must not be negative, got {list(padding)}")
    return list(zip(padding[:count], padding[count:], strict=True))


@dataclass(frozen=True)
class WindowPhases:
    """A dim of the convolution that computes all phases of a transposed one."""

    taps: int
    cropped: int
    """The phases before this one, in units of the stride, are all cropped."""
    before: int
    """Zeros before the operand, and after it."""
    after: Dim


def window_phases(size: Dim, count: Dim, kernel: int, stride: int, begin: int) -> WindowPhases:
    """Return the phases of a dim for an operand and a result of these sizes, of which the first ones are cropped."""
    taps = -(-kernel // stride)
    cropped = min(begin // stride, taps - 1)
    before = taps - 1 - cropped
    last = (count + begin - 1) // stride - cropped
    return WindowPhases(taps, cropped, before, D.maximum(last + taps - size - before, 0))


def window_extent(kernel: Dim, dilation: int) -> Dim:
    """Return how many elements a dilated window spans."""
    return (kernel - 1) * dilation + 1


def window_count(
    size: Dim, kernel: Dim, stride: int, dilation: int, pads: tuple[int, int], ceil_mode: bool = False
) -> Dim:
    """Return how many windows fit along one dim.

    With `ceil_mode` the last window may extend past the end, but must not start in the padding at the end. Both
    bounds on the number of windows have the form ceil(a / stride); the smaller one has the smaller a. So the one
    window that there is may be larger than the padded dim, if by less than the stride.
    """
    extent = window_extent(kernel, dilation)
    padded = size + sum(pads)
    past = stride - 1 if ceil_mode else 0
    around = f" (window {kernel}, dilation {dilation})" if dilation != 1 else ""
    text = f"a window of {extent}{around} does not fit a dim of {size} padded to {padded}"
    require_at_most(extent, padded + past, text)
    if ceil_mode and isinstance(extent, int):
        return D.ceildiv(size + pads[0] + min(0, pads[1] - extent + stride), stride)
    return (padded - extent) // stride + 1
