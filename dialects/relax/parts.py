"""Operators that divide a tensor of the program into parts on ranks, and that join the parts again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.core.attributes import Ints
from mirlo.dialects.core.conditions import require_multiple
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings
from mirlo.dialects.relax.collectives import RankOp


class PartsOp(RankOp):
    """An operator between a tensor and tiles of it: each axis is in `parts`, and `order` has the ranks of the tiles."""

    x = operand()
    parts = Ints()
    order = Ints()


class ToParts(PartsOp, name="to_parts"):
    """The rank's part of a tensor that all ranks have: each axis is in `parts`, row-major tiles.

    `order` has the ranks of the first tile, then those of the next. The pass `shard` divides what computes the tensor.
    """

    meaning_of_ranks = staticmethod(meanings.to_parts)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, parts: Sequence[int], order: Sequence[int]) -> TensorType:
        _require_tiles(x, ranks, parts, order)
        for axis, (dim, count) in enumerate(zip(x.shape, parts, strict=True)):
            require_multiple(dim, count, f"axis {axis} of {x} is {dim}: it must be a multiple of its {count} parts")
        return x.with_shape([dim // count for dim, count in zip(x.shape, parts, strict=True)])


class FromParts(PartsOp, name="from_parts"):
    """The tensor of which each rank has a part, as `to_parts` makes them."""

    meaning_of_ranks = staticmethod(meanings.from_parts)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, parts: Sequence[int], order: Sequence[int]) -> TensorType:
        _require_tiles(x, ranks, parts, order)
        return x.with_shape([dim * count for dim, count in zip(x.shape, parts, strict=True)])


def _require_tiles(x: TensorType, ranks: int, parts: Sequence[int], order: Sequence[int]) -> None:
    if not 0 < ranks == len(order) or sorted(order) != list(range(ranks)):
        raise OpError(f"order must have each of the ranks 0 to {ranks - 1} once, got {tuple(order)}")
    if len(parts) != x.rank or any(count < 1 for count in parts):
        raise OpError(f"parts must have a number for each axis of {x}, got {tuple(parts)}")
    if ranks % math.prod(parts):
        raise OpError(f"parts must be a divisor of the {ranks} ranks together, got {tuple(parts)}")
