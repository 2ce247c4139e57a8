"""Normalizations, and the statistics that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.tensor import Tensor
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Moments:
    """The mean and the variance over axes, which are kept as dims of 1."""

    centred: Tensor
    mean: Tensor
    variance: Tensor

    def normalized(self, epsilon: float) -> Tensor:
        """Return the tensor less its mean, divided by its deviation."""
        return self.centred * self.reciprocal_deviation(epsilon)

    def reciprocal_deviation(self, epsilon: float) -> Tensor:
        """Return one divided by the root of the variance and a small number."""
        return (self.variance + epsilon).rsqrt()


def moments(x: Tensor, axes: Sequence[int]) -> Moments:
    """Return the mean and the variance over axes; the variance is computed from the differences to the mean."""
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    return Moments(centred, mean, centred.square().mean(axes, keepdims=True))


def channel_axes(x: Tensor, axis: int = 1) -> list[int]:
    """Return all axes but that of the channels."""
    return [each for each in range(x.rank) if each != axis]


def of_channels(x: Tensor, like: Tensor, axis: int = 1) -> Tensor:
    """Return a vector of channels such that it broadcasts to a tensor."""
    return x.reshape((x.shape[0], *[1] * (like.rank - axis - 1)))


def batch_norm(
    x: Tensor, scale: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, epsilon: float, axis: int = 1
) -> Tensor:
    """Normalize by statistics of each channel; operands of several types are computed in f32 at least."""
    scale, bias = _affine(x, scale, bias, axis)
    operands = [scale, bias, mean, variance]
    if all(each.dtype is x.dtype for each in operands):
        return x.builder.emit("batch_norm", x, *operands, axis=axis, epsilon=epsilon)
    wide = x.cast("f32") if x.dtype.bits < 32 else x
    operands = [each.cast(wide.dtype) for each in operands]
    return wide.builder.emit("batch_norm", wide, *operands, axis=axis, epsilon=epsilon).cast(x.dtype)


def batch_norm_of_batch(
    x: Tensor, scale: Tensor, bias: Tensor, epsilon: float, axis: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize by the statistics of x itself; return the result, and mean and variance of each channel."""
    statistics = moments(x, channel_axes(x, axis))
    mean, variance = (each.reshape((x.shape[axis],)) for each in (statistics.mean, statistics.variance))
    return batch_norm(x, scale, bias, mean, variance, epsilon, axis), mean, variance


def group_norm(
    x: Tensor, scale: Tensor | None, bias: Tensor | None, groups: int, epsilon: float, is_last: bool = False
) -> Tensor:
    """Normalize groups of channels, which are the second dim, or the last one."""
    if is_last:
        front, back = [0, x.rank - 1, *range(1, x.rank - 1)], [0, *range(2, x.rank), 1]
        return group_norm(x.permute(front), scale, bias, groups, epsilon).permute(back)
    spread = x.reshape((*x.shape, 1)) if x.rank == 2 else x
    scale, bias = (each.cast(x.dtype) for each in _affine(x, scale, bias, 1))
    return x.builder.emit("group_norm", spread, scale, bias, groups=groups, epsilon=epsilon).reshape(x.shape)


def _affine(x: Tensor, scale: Tensor | None, bias: Tensor | None, axis: int) -> tuple[Tensor, Tensor]:
    """Return scale and bias of the channels: 1 and 0 for those that are left out."""
    channels = (x.shape[axis],)
    one, zero = (x.like(value).expand(channels) for value in (1, 0))
    return one if scale is None else scale, zero if bias is None else bias


def layer_norm(x: Tensor, scale: Tensor | None, bias: Tensor | None, axis: int, epsilon: float) -> Tensor:
    """Normalize the axes from one on; scale and bias have their shape."""
    scale, bias = (None if each is None else each.cast(x.dtype) for each in (scale, bias))
    if scale is None and bias is not None:
        return x.builder.emit("layer_norm", x, axis=axis, epsilon=epsilon) + bias
    return x.builder.emit("layer_norm", x, scale, bias, axis=axis, epsilon=epsilon)


def rms_norm(x: Tensor, scale: Tensor | None, axis: int, epsilon: float) -> Tensor:
    """Divide by the root of the mean square over the axes from one on."""
    return x.builder.emit("rms_norm", x, None if scale is None else scale.cast(x.dtype), axis=axis, epsilon=epsilon)


def moved(old: Tensor, new: Tensor, share: float) -> Tensor:
    """Return running statistics updated by a share of the new ones."""
    return old * (1 - share) + new * share
