"""Shape arithmetic of sliding windows, shared by convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.conditions import require_at_most
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.records import dataclass

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
