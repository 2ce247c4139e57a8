"""Convolutions over any number of spatial dims."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.core.attributes import ElementType, Int, Ints, Str
from mirlo.dialects.core.conditions import require_at_most, require_multiple
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError, operand, optional
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    CHANNELS_FIRST,
    DATA_LAYOUTS,
    FLOAT,
    KERNEL_LAYOUTS,
    channel_axis,
    data_shape,
    kernel_axes,
    padding_pairs,
    per_dim,
    product_dtype,
    require_equal_dims,
    require_kind,
    require_vector,
    same_dtype,
    spatial_axes,
    spatial_rank,
    window_count,
    window_extent,
)


class Conv(RelaxOp, name="conv"):
    """Convolution (cross-correlation) of `x` with `weight`.

    `padding` holds the padding before each spatial dim, then the padding after each. `kernel_layout` "OI*" is (out
    channels, in channels / groups, *window), "*IO" is (*window, in channels / groups, out channels), "O*I" is (out
    channels, *window, in channels / groups).
    """

    sharding = staticmethod(shardings.conv)
    TRAITS = (Trait.CONTRACTION,)
    PRECISION = Precision.WIDE_RESULT
    x = operand()
    weight = operand()
    bias = optional()
    strides = Ints(())
    padding = Ints(())
    dilations = Ints(())
    groups = Int(1)
    data_layout = Str(CHANNELS_FIRST, choices=DATA_LAYOUTS)
    kernel_layout = Str("OI*", choices=KERNEL_LAYOUTS)
    out_dtype = ElementType(None)

    @staticmethod
    def infer(
        x: TensorType,
        weight: TensorType,
        bias: TensorType | None,
        *,
        strides: tuple[int, ...],
        padding: tuple[int, ...],
        dilations: tuple[int, ...],
        groups: int,
        data_layout: str,
        kernel_layout: str,
        out_dtype: DType | None,
    ) -> TensorType:
        element = product_dtype("operand and weight", x, weight, out_dtype)
        count = spatial_rank(x, "operand")
        _require_weight_rank(x, weight)
        out_channels, in_channels, window = split_kernel(weight, kernel_layout)
        _require_groups(groups, out_channels, "out channels")
        channels = x.shape[channel_axis(data_layout, x.rank)]
        times = f" times {groups} groups" if groups > 1 else ""
        require_equal_dims(channels, in_channels * groups, f"the channels of {x} and those of {weight}{times}")
        _require_bias(bias, out_channels, element)
        strides, dilations = per_dim(strides, count, 1, 1, "strides"), per_dim(dilations, count, 1, 1, "dilations")
        pads = padding_pairs(padding, count)
        spatial = [
            window_count(x.shape[axis], window[i], strides[i], dilations[i], pads[i])
            for i, axis in enumerate(spatial_axes(data_layout, x.rank))
        ]
        return TensorType(data_shape(data_layout, x.shape[0], out_channels, spatial), element)

    @classmethod
    def flops(
        cls,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
        **attributes: int | str | tuple[int, ...] | None,
    ) -> int:
        elements, weight = math.prod(results[0].static_shape), operands[1].static_shape
        channels = weight[-1 if attributes["kernel_layout"] == "*IO" else 0]
        return 2 * elements * math.prod(weight) // max(1, channels) + (elements if len(operands) > 2 else 0)


class ConvTranspose(RelaxOp, name="conv_transpose"):
    """Transposed convolution: the gradient of `conv` with respect to its input.

    `weight` is (in channels, out channels / groups, *window). `padding` crops the result, `output_padding` extends it
    at the end.
    """

    TRAITS = (Trait.CONTRACTION,)
    PRECISION = Precision.NARROW
    x = operand()
    weight = operand()
    bias = optional()
    strides = Ints(())
    padding = Ints(())
    output_padding = Ints(())
    dilations = Ints(())
    groups = Int(1)
    data_layout = Str(CHANNELS_FIRST, choices=DATA_LAYOUTS)

    @staticmethod
    def infer(
        x: TensorType,
        weight: TensorType,
        bias: TensorType | None,
        *,
        strides: tuple[int, ...],
        padding: tuple[int, ...],
        output_padding: tuple[int, ...],
        dilations: tuple[int, ...],
        groups: int,
        data_layout: str,
    ) -> TensorType:
        same_dtype("operands", x, weight)
        require_kind(x, FLOAT, "operands")
        count = spatial_rank(x, "operand")
        _require_weight_rank(x, weight)
        channels = x.shape[channel_axis(data_layout, x.rank)]
        require_equal_dims(channels, weight.shape[0], f"the channels of {x} and the first dim of {weight}")
        _require_groups(groups, channels, "channels of the operand")
        out_channels = weight.shape[1] * groups
        _require_bias(bias, out_channels, x.dtype)
        strides, dilations = per_dim(strides, count, 1, 1, "strides"), per_dim(dilations, count, 1, 1, "dilations")
        extra = per_dim(output_padding, count, 0, 0, "output_padding")
        pads = padding_pairs(padding, count)
        spatial = []
        for i, axis in enumerate(spatial_axes(data_layout, x.rank)):
            extent = window_extent(weight.shape[2 + i], dilations[i])
            size = (x.shape[axis] - 1) * strides[i] + extent + extra[i] - sum(pads[i])
            require_at_most(1, size, f"padding {list(padding)} crops spatial dim {i} of the result to {size}")
            spatial.append(size)
        return x.with_shape(data_shape(data_layout, x.shape[0], out_channels, spatial))

    @classmethod
    def flops(
        cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: int | str | tuple[int, ...]
    ) -> int:
        return 2 * math.prod(operands[0].static_shape) * math.prod(operands[1].static_shape[1:])


class ConvWeightGradient(RelaxOp, name="conv_weight_gradient"):
    """The gradient of `conv` with respect to its weight.

    `gradient` is that of the result of the convolution of `x`; the result has the kernel layout, with a window of the
    size `window`.
    """

    TRAITS = (Trait.CONTRACTION,)
    PRECISION = Precision.F32
    x = operand()
    gradient = operand()
    window = Ints(())
    strides = Ints(())
    padding = Ints(())
    dilations = Ints(())
    groups = Int(1)
    data_layout = Str(CHANNELS_FIRST, choices=DATA_LAYOUTS)
    kernel_layout = Str("OI*", choices=KERNEL_LAYOUTS)

    @staticmethod
    def infer(
        x: TensorType,
        gradient: TensorType,
        *,
        window: tuple[int, ...],
        strides: tuple[int, ...],
        padding: tuple[int, ...],
        dilations: tuple[int, ...],
        groups: int,
        data_layout: str,
        kernel_layout: str,
    ) -> TensorType:
        same_dtype("operands", x, gradient)
        require_kind(x, FLOAT, "operands")
        count = spatial_rank(x, "operand")
        if gradient.rank != x.rank:
            raise OpError(f"the gradient must have the rank of the operand, {x.rank}, got {gradient}")
        if len(window) != count:
            raise OpError(f"window must be one number per spatial dim, {count} of them, got {list(window)}")
        require_equal_dims(x.shape[0], gradient.shape[0], f"the batches of {x} and {gradient}")
        channels, out_channels = (each.shape[channel_axis(data_layout, x.rank)] for each in (x, gradient))
        _require_groups(groups, channels, "channels of the operand")
        _require_groups(groups, out_channels, "out channels")
        strides, dilations = per_dim(strides, count, 1, 1, "strides"), per_dim(dilations, count, 1, 1, "dilations")
        pads = padding_pairs(padding, count)
        for i, axis in enumerate(spatial_axes(data_layout, x.rank)):
            windows = window_count(x.shape[axis], window[i], strides[i], dilations[i], pads[i])
            require_equal_dims(windows, gradient.shape[axis], f"the windows of {x} and spatial dim {i} of {gradient}")
        out, inner, axes = kernel_axes(kernel_layout, x.rank)
        sizes = {out: out_channels, inner: channels // groups, **dict(zip(axes, window, strict=True))}
        return x.with_shape(tuple(sizes[axis] for axis in range(x.rank)))

    @classmethod
    def flops(
        cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: int | str | tuple[int, ...]
    ) -> int:
        gradient, weight = operands[1].static_shape, results[0].static_shape
        channels = gradient[channel_axis(str(attributes["data_layout"]), len(gradient))]
        return 2 * math.prod(gradient) * math.prod(weight) // max(1, channels)


def split_kernel(weight: TensorType, layout: str) -> tuple[Dim, Dim, tuple[Dim, ...]]:
    """Return out channels, in channels per group and window of a weight in this layout."""
    out, channels, window = kernel_axes(layout, weight.rank)
    return weight.shape[out], weight.shape[channels], tuple(weight.shape[axis] for axis in window)


def _require_weight_rank(x: TensorType, weight: TensorType) -> None:
    if weight.rank != x.rank:
        raise OpError(f"weight must have the rank of the operand, {x.rank}, got {weight}")


def _require_groups(groups: int, channels: Dim, what: str) -> None:
    if groups < 1:
        raise OpError(f"groups must be at least 1, got {groups}")
    require_multiple(channels, groups, f"the {channels} {what} must divide into {groups} groups")


def _require_bias(bias: TensorType | None, out_channels: Dim, element: DType) -> None:
    if bias is None:
        return
    require_vector(bias, out_channels, "bias", "out channel")
    if bias.dtype is not element:
        raise OpError(f"bias must have the element type of the result, {element}, got {bias.dtype}")
