"""What is to be convolved, as data: the steps of a plan. It imports nothing of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True)
class Convolution:
    """y = activation(x * weight + bias); values by number, shapes with channels second, wherever they lie."""

    x: int
    weight: int
    y: int
    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    """Out channels, in channels of a group, window."""
    y_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    """As much at the end of a dim as at its begin."""
    dilations: tuple[int, ...]
    groups: int
    channels_last: bool
    dtype: str
    bias: int | None = None
    activation: str = ""
    """`relu` or none."""
