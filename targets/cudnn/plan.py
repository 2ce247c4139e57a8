"""What the library is to compute, as data: the steps of a plan. It imports nothing of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DTYPES = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True)
class Convolution:
    """y = activation(x * weight + bias + added); values by number, shapes with channels second, wherever they lie."""

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
    added: int | None = None
    """A tensor like y that is added: what a block of a network came from."""


ATTENTION_DTYPES = ("f16", "bf16")


@dataclass(frozen=True)
class Attention:
    """y = softmax(q · kᵀ · scale + mask) · v, of each head; values by number, shapes [batch, heads, length, size].

    Tensors lie as their strides say, in elements; the numbers of a head side by side.
    """

    q: int
    k: int
    v: int
    y: int
    q_shape: tuple[int, ...]
    k_shape: tuple[int, ...]
    """With as many heads as keys have: some queries share them."""
    v_shape: tuple[int, ...]
    q_strides: tuple[int, ...]
    k_strides: tuple[int, ...]
    v_strides: tuple[int, ...]
    y_strides: tuple[int, ...]
    scale: float
    dtype: str
    bound: int | None = None
    """Query s sees keys up to s + bound; None where each sees all."""
    mask: int | None = None
    """What is added to the scores, of the same type, without gaps."""
    mask_shape: tuple[int, ...] | None = None
    """Its dims: those of the scores, or 1 for the batch and the heads."""


def contiguous(dims: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor without gaps."""
    strides, apart = [], 1
    for dim in reversed(dims):
        strides.append(apart)
        apart *= dim
    return tuple(reversed(strides))
