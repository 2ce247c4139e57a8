"""Reshaping, transposition and broadcasting."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Dims, Int, Ints, Str
from mirlo.dialects.core.conditions import require_between, require_equal, require_multiple
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.relax import meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    normalize_axes,
    normalize_axis,
    require_broadcast_to,
    require_one_count,
    require_rank,
    shape_text,
)

VIEW_TEXT = "relax.view_text"
"""Attribute of a reshape: text for the run-time error when the numbers of elements differ."""


class Reshape(RelaxOp, name="reshape"):
    """The same elements, in row-major order, in another shape."""

    TRAITS = (Trait.VIEW, Trait.CHECKS_DIMS)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, shape: x.reshape(shape))
    sharding = staticmethod(shardings.reshape)
    x = operand()
    shape = Dims()

    @staticmethod
    def infer(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
        reshaped = x.with_shape(shape)
        require_one_count(x, reshaped)
        return reshaped

    @property
    def checked_dims(self) -> list[Dim]:
        """Return the dims that are not negative after it: both differences of two numbers of elements that are one."""
        before, after = (dims_of(value.type) for value in (self.operation.operands[0], self.operation.results[0]))
        if before == after or D.UNKNOWN in (*before, *after):
            return []
        excess = D.product(before) - D.product(after)
        return [] if isinstance(excess, int) else [excess, -excess]


class Permute(RelaxOp, name="permute"):
    """numpy's `transpose`: dim i of the result is dim `axes[i]` of x."""

    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, axes: x.transpose(axes))
    sharding = staticmethod(shardings.permute)
    x = operand()
    axes = Ints()

    @staticmethod
    def infer(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
        order = [normalize_axis(axis, x.rank) for axis in axes]
        if sorted(order) != list(range(x.rank)):
            raise OpError(f"axes must name each of the {x.rank} axes of {x} once, got {list(axes)}")
        return x.with_shape([x.shape[axis] for axis in order])


class Expand(RelaxOp, name="expand"):
    """numpy's `broadcast_to`. A dim that may be 1 is checked in the call, and has a stride of 0 or its own there."""

    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, shape: np.broadcast_to(x, shape))
    sharding = staticmethod(shardings.expand)
    x = operand()
    shape = Dims()

    @staticmethod
    def infer(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
        pairs = list(zip(x.shape, shape[max(0, len(shape) - x.rank) :], strict=False))
        decided = [target if not isinstance(target, int) or not isinstance(dim, int) else dim for dim, target in pairs]
        require_broadcast_to(decided if len(decided) == x.rank else x.shape, shape, "operand")
        text = f"a tensor of shape {shape_text(x.shape)} does not broadcast to {shape_text(shape)}"
        for dim, target in zip(x.shape, shape[len(shape) - x.rank :], strict=True):
            if dim not in (1, target) and dim is not D.UNKNOWN and target is not D.UNKNOWN:
                require_between(dim, (1, target), text)
        return x.with_shape(shape)


class ExpandDims(RelaxOp, name="expand_dims"):
    """Insert dims of 1 at these axes of the result."""

    TRAITS = (Trait.VIEW,)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.expand_dims)
    sharding = staticmethod(shardings.move)
    x = operand()
    axes = Ints()

    @staticmethod
    def infer(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
        new = set(normalize_axes(axes, x.rank + len(axes)))
        old = iter(x.shape)
        return x.with_shape([1 if i in new else next(old) for i in range(x.rank + len(axes))])


class Squeeze(RelaxOp, name="squeeze"):
    """Remove these axes, which must be 1."""

    TRAITS = (Trait.VIEW,)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, axes: np.squeeze(x, tuple(axes)))
    sharding = staticmethod(shardings.move)
    x = operand()
    axes = Ints()

    @staticmethod
    def infer(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
        squeezed = set(normalize_axes(axes, x.rank))
        for axis in squeezed:
            text = f"axis {axis} of {x} is {x.shape[axis]}: only a dim of 1 can be squeezed"
            require_equal(x.shape[axis], 1, text)
        return x.with_shape([dim for i, dim in enumerate(x.shape) if i not in squeezed])


class Tile(RelaxOp, name="tile"):
    """x repeated the given number of times along each axis."""

    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, repeats: np.tile(x, repeats))
    x = operand()
    repeats = Ints()

    @staticmethod
    def infer(x: TensorType, *, repeats: tuple[int, ...]) -> TensorType:
        if len(repeats) != x.rank or any(count < 0 for count in repeats):
            raise OpError(f"repeats must be one non-negative number per axis of {x}, got {list(repeats)}")
        return x.with_shape([dim * count for dim, count in zip(x.shape, repeats, strict=True)])


class Reverse(RelaxOp, name="reverse"):
    """numpy's `flip` along these axes."""

    sharding = staticmethod(shardings.reverse)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, axes: np.flip(x, tuple(axes)))
    x = operand()
    axes = Ints()

    @staticmethod
    def infer(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
        normalize_axes(axes, x.rank)
        return x


class DepthToSpace(RelaxOp, name="depth_to_space"):
    """[N, C * block^2, H, W] to [N, C, H * block, W * block].

    `mode` is the order of the channel dim: (row, column, C) or (C, row, column).
    """

    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.depth_to_space)
    x = operand()
    block = Int()
    mode = Str("DCR", choices=("DCR", "CRD"))

    @staticmethod
    def infer(x: TensorType, *, block: int, mode: str) -> TensorType:
        batch, channels, height, width = _images(x, block)
        require_multiple(channels, block**2, f"the {channels} channels of {x} must be a multiple of {block}^2")
        return x.with_shape((batch, channels // block**2, height * block, width * block))


class SpaceToDepth(RelaxOp, name="space_to_depth"):
    """[N, C, H, W] to [N, block^2 * C, H / block, W / block]."""

    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.space_to_depth)
    x = operand()
    block = Int()

    @staticmethod
    def infer(x: TensorType, *, block: int) -> TensorType:
        batch, channels, height, width = _images(x, block)
        for size in (height, width):
            require_multiple(size, block, f"height and width of {x} must be multiples of {block}")
        return x.with_shape((batch, channels * block**2, height // block, width // block))


class ShapeOf(RelaxOp, name="shape_of"):
    """The dims of x, as a vector of i64."""

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x: np.array(x.shape))
    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return TensorType.of((x.rank,), "i64")


def _images(x: TensorType, block: int) -> tuple[Dim, ...]:
    require_rank(x, 4, "operand [batch, channels, height, width]")
    if block < 1:
        raise OpError(f"block must be at least 1, got {block}")
    return x.shape
