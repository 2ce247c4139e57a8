"""Pooling over sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mirlo.dialects.core.attributes import Bool, Int, Ints, Str
from mirlo.dialects.core.op import OpError, operand, result
from mirlo.dialects.core.traits import Precision
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    CHANNELS_FIRST,
    DATA_LAYOUTS,
    FLOAT,
    NUMBER,
    channel_axis,
    data_shape,
    padding_pairs,
    per_dim,
    require_kind,
    spatial_axes,
    spatial_rank,
    window_count,
)


class Pool(RelaxOp):
    """Base of pooling operators: one result element per window.

    `padding` holds the padding before each spatial dim, then the padding after each.
    """

    sharding = staticmethod(shardings.pool)
    KINDS: tuple[str, ...] = FLOAT
    x = operand()
    kernel = Ints()
    strides = Ints(())
    padding = Ints(())
    dilations = Ints(())
    ceil_mode = Bool(False)
    data_layout = Str(CHANNELS_FIRST, choices=DATA_LAYOUTS)

    @classmethod
    def infer(cls, x: TensorType, *, data_layout: str, **window: int | tuple[int, ...]) -> TensorType:
        require_kind(x, cls.KINDS, "operand")
        return _pooled(x, data_layout, window)

    @classmethod
    def flops(cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: Any) -> int:
        return int(math.prod(results[0].static_shape) * math.prod(attributes["kernel"]))


class MaxPool(Pool, name="max_pool"):
    """The maximum of each window."""

    PRECISION = Precision.MOVES
    KINDS = NUMBER


class AvgPool(Pool, name="avg_pool"):
    """The mean of each window; with `count_include_pad`, padding counts as zeros."""

    PRECISION = Precision.REGISTERS
    count_include_pad = Bool(False)


class LpPool(Pool, name="lp_pool"):
    """(sum |x|^p)^(1/p) of each window."""

    p = Int(2)

    @classmethod
    def infer(cls, x: TensorType, *, data_layout: str, **window: Any) -> TensorType:
        if window["p"] < 1:
            raise OpError(f"p must be at least 1, got {window['p']}")
        return super().infer(x, data_layout=data_layout, **window)


class MaxPoolWithIndices(RelaxOp, name="max_pool_with_indices"):
    """The maximum of each window, and its index in the flattened operand, as if its channels were before the images.

    With `storage_order` 1, indices count the last two spatial dims in column-major order.
    """

    x = operand()
    values = result()
    indices = result()
    kernel = Ints()
    strides = Ints(())
    padding = Ints(())
    dilations = Ints(())
    ceil_mode = Bool(False)
    storage_order = Int(0, choices=(0, 1))
    data_layout = Str(CHANNELS_FIRST, choices=DATA_LAYOUTS)

    @staticmethod
    def infer(x: TensorType, *, data_layout: str, **window: int | tuple[int, ...]) -> tuple[TensorType, TensorType]:
        require_kind(x, NUMBER, "operand")
        values = _pooled(x, data_layout, window)
        return values, values.with_dtype("i64")


def _pooled(x: TensorType, layout: str, window: dict[str, Any]) -> TensorType:
    count = spatial_rank(x, "operand")
    if len(window["kernel"]) != count:
        raise OpError(
            f"kernel must be one number per spatial dim of {x}, {count} of them, got {list(window['kernel'])}"
        )
    kernel = per_dim(window["kernel"], count, 1, 1, "kernel")
    strides = per_dim(window["strides"], count, 1, 1, "strides")
    dilations = per_dim(window["dilations"], count, 1, 1, "dilations")
    pads = padding_pairs(window["padding"], count)
    spatial = []
    for i, axis in enumerate(spatial_axes(layout, x.rank)):
        extent = (kernel[i] - 1) * dilations[i] + 1
        if max(pads[i]) >= extent:
            raise OpError(f"padding {pads[i]} of spatial dim {i} must be smaller than the window of {extent}")
        spatial.append(window_count(x.shape[axis], kernel[i], strides[i], dilations[i], pads[i], window["ceil_mode"]))
    channels = x.shape[channel_axis(layout, x.rank)]
    return x.with_shape(data_shape(layout, x.shape[0], channels, spatial))
