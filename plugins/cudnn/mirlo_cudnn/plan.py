"""Plans for the library as data. Imports nothing of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DTYPES = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True)
class Convolution:
    """y = activation(x * weight + bias + added); values by number, shapes with channels second in any layout."""

    x: int
    weight: int
    y: int
    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    """Output channels, input channels per group, window."""
    y_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    """The padding, the same at both ends of a dim."""
    dilations: tuple[int, ...]
    groups: int
    channels_last: bool
    dtype: str
    bias: int | None = None
    activation: str = ""
    """`relu` or none."""
    added: int | None = None
    """A tensor of y's shape that is added: a residual connection."""


ATTENTION_DTYPES = ("f16", "bf16")


@dataclass(frozen=True)
class AttentionStep:
    """y = softmax(q · kᵀ · scale + mask) · v, of each head; values by number, shapes [batch, heads, length, size].

    Tensors have strides in elements; the elements of a head are contiguous.
    """

    q: int
    k: int
    v: int
    y: int
    q_shape: tuple[int, ...]
    k_shape: tuple[int, ...]
    """The keys' shape, with as many heads as keys have: several queries may share one."""
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
    """The dense mask that is added to the scores, of the same type."""
    mask_shape: tuple[int, ...] | None = None
    """The mask's shape: that of the scores, or 1 for the batch and the heads."""


def contiguous(dims: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor."""
    strides, apart = [], 1
    for dim in reversed(dims):
        strides.append(apart)
        apart *= dim
    return tuple(reversed(strides))
