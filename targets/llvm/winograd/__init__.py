"""Winograd's algorithm for 3x3 convolutions: a pass, and schedules of its transforms."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import kind_of
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass

INPUT_BLOCK = "winograd_input"
OUTPUT_BLOCK = "winograd_output"
GRADIENT_BLOCK = "winograd_gradient"
"""The names of the blocks that transform images, products and gradients of results."""
TILES = (2, 4)
"""The rows of results of a tile, least first, for which there are transforms."""


@dataclass(frozen=True)
class ConvolutionView:
    """The properties that decide how a convolution is computed, whether it is in the graph yet or not."""

    x: TensorType
    weight: TensorType
    out: TensorType
    data_layout: str
    kernel_layout: str
    strides: Sequence[int]
    dilations: Sequence[int]
    groups: int
    padding: Sequence[int]
    is_constant: bool
    """Whether the weight is."""

    @staticmethod
    def of(conv: ir.OpView) -> ConvolutionView:
        x, weight, out = (kind_of(v) for v in (conv.x, conv.weight, conv.output))
        return ConvolutionView(
            x, weight, out, conv.data_layout, conv.kernel_layout, conv.strides, conv.dilations, conv.groups,
            conv.padding, is_constant(conv.weight),
        )  # fmt: skip

    @staticmethod
    def of_gradient(op: ir.OpView) -> ConvolutionView:
        """Return the convolution of whose weight an operator computes the gradient."""
        x, weight, out = (kind_of(v) for v in (op.x, op.output, op.gradient))
        return ConvolutionView(
            x, weight, out, op.data_layout, op.kernel_layout, op.strides, op.dilations, op.groups, op.padding, False
        )


def declined(conv: ConvolutionView, largest: int) -> Decline | None:
    """Return why a convolution is not one that the algorithm computes with tiles of at most this size, else None."""
    x, weight = conv.x, conv.weight
    if largest == 0:
        return decline("no tile is allowed")
    if x.rank != 4 or conv.data_layout != "N*C" or conv.kernel_layout != "*IO":
        return decline("it is not a convolution of images with their channels last")
    if not weight.is_static:
        return decline("the size of the window is known at run time only")
    if weight.static_shape[:2] != (3, 3) or any(n != 1 for n in (*conv.strides, *conv.dilations)):
        return decline("the window is not 3x3 with steps of 1", window=weight.static_shape[:2], strides=conv.strides)
    return None if conv.groups == 1 else decline("it has groups", groups=conv.groups)
